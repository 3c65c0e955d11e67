# cmake --install: the binary and the files that a system expects with it. The binary itself generates the completion
# scripts and manual pages, so they always match it.
include(GNUInstallDirs)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  install(CODE "set(CMAKE_INSTALL_DO_STRIP 1)")  # as with `cmake --install --strip`
endif()
install(TARGETS gdnctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

set(generated ${CMAKE_BINARY_DIR}/generated)
install(CODE "
  function(from_gdnctl)
    execute_process(COMMAND \"$<TARGET_FILE:gdnctl>\" \${ARGN} WORKING_DIRECTORY \"${generated}\"
                    COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE text)
    set(text \"\${text}\" PARENT_SCOPE)
  endfunction()
  file(REMOVE_RECURSE \"${generated}\")
  file(MAKE_DIRECTORY \"${generated}/man1\")
  from_gdnctl(__docs man --out man1)
  foreach(shell bash zsh fish)
    from_gdnctl(completion \${shell})
    file(WRITE \"${generated}/completion.\${shell}\" \"\${text}\")
  endforeach()")
install(DIRECTORY ${generated}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${generated}/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME gdnctl)
install(FILES ${generated}/completion.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _gdnctl)
install(FILES ${generated}/completion.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME gdnctl.fish)

# The documents in the folders that they have here, with every file that they link to, so that their links work.
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples include prompts DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS)
install(FILES tests/faults.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests)
install(DIRECTORY tests/fixtures/flashinfer/solution DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests/fixtures/flashinfer)
