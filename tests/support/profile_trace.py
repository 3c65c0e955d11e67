#!/usr/bin/env python3
"""Writes a profile as XLA writes it in Chrome's JSON: STEPS steps of one program on one TPU, each with a fusion and a
kernel. Usage: profile_trace.py FILE STEP_MS [KERNEL_US]"""
import json
import os
import sys

STEPS = 8


def x(pid, tid, name, start_us, duration_us, **args):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start_us, "dur": duration_us, "args": args}


def name(kind, pid, text, tid=None):
    event = {"ph": "M", "pid": pid, "name": kind, "args": {"name": text}}
    if tid is not None:
        event["tid"] = tid
    return event


def trace(step_ms, kernel_us):
    step_us = step_ms * 1000
    events = [name("process_name", 3, "/device:TPU:0"), name("thread_name", 3, "XLA Modules", 1),
              name("thread_name", 3, "XLA Ops", 2)]
    for i in range(STEPS):
        start = 1000 + i * (step_us + 10)
        step = step_us + (0.01 if i % 2 else -0.01)  # no two clocks agree
        events.append(x(3, 1, "jit_train(17)", start, step, run_id=str(i)))
        events.append(x(3, 2, "fusion.1", start, step - kernel_us, hlo_category="loop fusion",
                        long_name="%fusion.1 = f32[8,128]{1,0} fusion(f32[8,128]{1,0} %p.1), kind=kLoop", tf_op="mul"))
        events.append(x(3, 2, "gdn_kernel.2", start + step - kernel_us, kernel_us, hlo_category="custom-call",
                        long_name='%gdn_kernel.2 = f32[8,128]{1,0} custom-call(f32[8,128]{1,0} %fusion.1), '
                                  'custom_call_target="tpu_custom_call"', tf_op="shard_map/pallas_call"))
    said = {"step_ms": step_ms, "kernel_us": kernel_us, "digest": f"step {step_ms:g} ms\n",
            "log_lines": [f"- Step duration: `{step_ms:.6f} ms`", f"- gdn_kernel: `{kernel_us / 1000:.6f} ms`"]}
    return {"displayTimeUnit": "ns", "metadata": said, "traceEvents": events + [{}]}


def main():
    path, step_ms = sys.argv[1], float(sys.argv[2])
    kernel_us = float(sys.argv[3]) if len(sys.argv) > 3 else step_ms * 250
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        json.dump(trace(step_ms, kernel_us), file)


main()
