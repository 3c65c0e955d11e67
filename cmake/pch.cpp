// Compiled only for the precompiled header.
