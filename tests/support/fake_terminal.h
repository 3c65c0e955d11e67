// A terminal that records what is written to it.
#pragma once

#include <string>

#include "platform/terminal.h"

namespace gdnctl::test {

class FakeTerminal final : public Terminal {
public:
    void out(std::string_view bytes) override {
        if (!closed) out_text += bytes;
    }
    void err(std::string_view bytes) override { err_text += bytes; }
    Status flush() override {
        ++flushes;
        return flush_result;
    }
    bool out_closed() const override { return closed; }
    bool out_is_tty() const override { return out_tty; }
    bool err_is_tty() const override { return err_tty; }
    int columns() const override { return width; }
    bool color_out() const override { return color; }
    bool color_err() const override { return color; }

    std::string out_text, err_text;
    int flushes = 0;
    Status flush_result;
    bool closed = false, out_tty = false, err_tty = false, color = false;
    int width = 100;
};

}  // namespace gdnctl::test
