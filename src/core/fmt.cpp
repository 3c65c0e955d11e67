// Debian ships fmt as a shared object only; this file compiles the parts that are not header-only, so that the binary
// carries them itself. Instantiated is what format.h declares extern and this program reaches.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
