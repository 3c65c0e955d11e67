#include "platform/ssh_options.h"

namespace gdnctl {

std::vector<std::string> ssh_overrides() {
    static const SshSettings settings = {
        // Older versions of ssh lack some of the options below. It also replaces an IgnoreUnknown of the user's, which
        // must not start to complain.
        {"IgnoreUnknown", "*"},
        // Questions have nobody to answer them.
        {"BatchMode", "yes"},
        {"AddKeysToAgent", "no"},
        {"UpdateHostKeys", "no"},
        {"VerifyHostKeyDNS", "no"},
        // Standard input and output carry data, and belong to the command that gdnctl names.
        {"RequestTTY", "no"},
        {"RemoteCommand", "none"},
        {"ForkAfterAuthentication", "no"},
        {"StdinNull", "no"},
        {"PermitLocalCommand", "no"},
        // Standard error has ssh's reasons and nothing else.
        {"LogLevel", "INFO"},
        {"LogVerbose", "none"},
        {"VisualHostKey", "no"},
        // A port or a device that is in use does not matter.
        {"ExitOnForwardFailure", "no"},
        {"Tunnel", "no"},
        {"ForwardX11", "no"},
        {"ChannelTimeout", "none"},
        // The address is known, of either family, and a key is the only way in without a person.
        {"CanonicalizeHostname", "no"},
        {"AddressFamily", "any"},
        {"KnownHostsCommand", "none"},
        {"PubkeyAuthentication", "yes"},
        {"PreferredAuthentications", "gssapi-with-mic,hostbased,publickey"},
    };
    return ssh_words(settings);
}

std::vector<std::string> ssh_words(const SshSettings& settings) {
    std::vector<std::string> words;
    for (const auto& [name, value] : settings) {
        words.emplace_back("-o");
        words.push_back(name + "=" + value);
    }
    return words;
}

std::string ssh_path(const std::filesystem::path& path, std::string_view token) {
    std::string out;
    for (const char c : path.string()) {
        if (c == '%') out += '%';
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    out += token;
    return out.find_first_of(" \t\"'\\#=") == std::string::npos ? out : '"' + out + '"';
}

}  // namespace gdnctl
