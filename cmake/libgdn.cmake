# libgdn: the kernels with a C interface, as a shared object and as an archive of one object. Both export only the names in
# src/libgdn/exports.map. Not built with sanitizers, because no other program could load it.
file(GLOB gdn_sources CONFIGURE_DEPENDS src/libgdn/*.cpp)
add_library(gdn_interface OBJECT ${gdn_sources})
target_link_libraries(gdn_interface PRIVATE gdnctl_settings)
target_compile_definitions(gdn_interface PRIVATE GDNCTL_VERSION="${PROJECT_VERSION}")
target_compile_options(gdn_interface PRIVATE ${gdn_compile_options})

# The kernels are the oracle's own objects.
set(gdn_objects $<TARGET_OBJECTS:gdn_interface>
    $<TARGET_OBJECTS:gdnctl_oracle_kernels>
    $<TARGET_OBJECTS:gdnctl_kernels_scalar>
    $<TARGET_OBJECTS:gdnctl_kernels_avx2>
    $<TARGET_OBJECTS:gdnctl_kernels_avx512>
    "$<FILTER:$<TARGET_OBJECTS:gdnctl_oracle_inputs>,INCLUDE,/oracle/(gdn/contract/(names|problem)|tensor/tensor)\\.>")

set(gdn_exports ${CMAKE_SOURCE_DIR}/src/libgdn/exports.map)
add_library(gdn SHARED ${gdn_objects})
set_target_properties(gdn PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 1 LINKER_LANGUAGE CXX LINK_DEPENDS ${gdn_exports})
target_link_options(gdn PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,-z,defs
                    -Wl,--version-script=${gdn_exports} -Wl,--exclude-libs,ALL
                    -Wl,-z,nodelete)  # its helpers outlive a dlclose
target_link_libraries(gdn PRIVATE Threads::Threads)

# One relocatable object in which all other names are local.
file(STRINGS ${gdn_exports} gdn_names REGEX "^ +(gdn|linear_ce)_")
set(gdn_roots "")
set(gdn_keep "")
foreach(line IN LISTS gdn_names)
  string(REGEX MATCH "(gdn|linear_ce)_[a-z0-9_]+" name ${line})
  list(APPEND gdn_roots -u ${name})
  list(APPEND gdn_keep --keep-global-symbol=${name})
endforeach()
set(gdn_archive ${CMAKE_BINARY_DIR}/libgdn.a)
add_custom_command(OUTPUT ${gdn_archive}
  COMMAND ${CMAKE_LINKER} -r --gc-sections --force-group-allocation ${gdn_roots} -o gdn_all.o ${gdn_objects}
  COMMAND ${CMAKE_OBJCOPY} --strip-unneeded ${gdn_keep} gdn_all.o gdn_one.o
  COMMAND ${CMAKE_COMMAND} -E rm -f ${gdn_archive}
  COMMAND ${CMAKE_AR} qcs ${gdn_archive} gdn_one.o
  DEPENDS gdn_interface gdnctl_oracle_kernels gdnctl_oracle_inputs ${gdn_objects} ${gdn_exports}
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR} COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(gdn_static ALL DEPENDS ${gdn_archive})

include(GNUInstallDirs)
file(RELATIVE_PATH GDN_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_SOURCE_DIR}/cmake/gdn.pc.in ${CMAKE_BINARY_DIR}/gdn.pc @ONLY)
install(TARGETS gdn LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${gdn_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/gdn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/gdn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
