#include "render/html_page.h"

#include <fmt/format.h>

namespace gdnctl::html {

std::string escaped(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
        }
    }
    return out;
}

std::string document(std::string_view title, std::string_view style, std::string_view body) {
    return fmt::format(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
        "<title>{}</title>\n<style>{}</style></head>\n<body>\n{}</body></html>\n",
        escaped(title), style, body);
}

}  // namespace gdnctl::html
