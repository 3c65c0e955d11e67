/* The part of tvm-ffi's C interface that a solution in C is called by, in our own words: a function gets its arguments
 * as an array of tagged 16-byte values, tensors as pointers to DLPack's DLTensor. Solutions find this file as
 * <tvm/ffi/c_api.h> and as <dlpack/dlpack.h>. */
#ifndef GDNCTL_SOLUTION_ABI_H
#define GDNCTL_SOLUTION_ABI_H

#include <stdint.h>
#include <stdio.h>

enum { kDLCPU = 1 };                              /* DLDevice.device_type */
enum { kDLInt = 0, kDLFloat = 2, kDLBfloat = 4 }; /* DLDataType.code */

typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* 1 */
} DLDataType;

typedef struct {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t* shape;
    int64_t* strides; /* in elements */
    uint64_t byte_offset;
} DLTensor;

/* TVMFFIAny.type_index */
enum { kTVMFFINone = 0, kTVMFFIInt = 1, kTVMFFIBool = 2, kTVMFFIFloat = 3, kTVMFFIDLTensorPtr = 7, kTVMFFITensor = 70 };

typedef struct {
    uint64_t combined_ref_count;
    int32_t type_index;
    uint32_t padding;
    void (*deleter)(void* self, int flags);
} TVMFFIObject;

typedef struct {
    int32_t type_index;
    uint32_t zero_padding;
    union {
        int64_t v_int64;
        double v_float64;
        void* v_ptr; /* kTVMFFIDLTensorPtr: a DLTensor */
        const char* v_c_str;
        TVMFFIObject* v_obj;
    };
} TVMFFIAny;

#define TVM_FFI_DLL_EXPORT __attribute__((visibility("default")))

/* What a solution has as __tvm_ffi_NAME. 0: done; anything else: it failed. */
typedef int (*TVMFFISafeCallType)(void* handle, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/* Says why it failed. */
static inline void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
    fprintf(stderr, "%s: %s\n", kind, message);
}

#endif
