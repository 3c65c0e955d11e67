// Reading fields of foreign JSON: each error says where it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "oracle/flashinfer/flashinfer.h"

namespace gdnctl::oracle::flashinfer {

// A spot in a file, for messages: "FILE: axis 'num_seqs'".
class Place {
public:
    explicit Place(std::string_view what) : m_what(what) {}
    Place in(std::string_view step) const { return Place(m_what + ": " + std::string(step)); }

    tl::unexpected<Error> bad(std::string_view detail) const;

    Status must_be_object(const Json& value) const;
    // Of an object: a member that must be there, and of that kind. Texts must not be empty.
    Result<std::string> text(const Json& object, std::string_view key) const;
    Result<std::int64_t> size(const Json& object, std::string_view key) const;  // 0 .. 2^40
    Result<const Json*> object(const Json& object, std::string_view key) const;
    Result<const Json*> array(const Json& object, std::string_view key) const;
    // A member that may be missing or null.
    Result<std::string> text_or(const Json& object, std::string_view key, std::string_view otherwise) const;
    Result<bool> flag_or(const Json& object, std::string_view key, bool otherwise) const;
    // A number, or one of the words that stand for what JSON cannot write.
    Result<double> number_or(const Json& object, std::string_view key, double otherwise) const;

private:
    std::string m_what;
};

Json number_json(double x);  // "NaN", "Infinity", "-Infinity" as texts

}  // namespace gdnctl::oracle::flashinfer
