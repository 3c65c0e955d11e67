// Only the precompiled header comes from here.
