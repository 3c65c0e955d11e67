# cmake [-D OUT=FOLDER] -P cmake/dist.cmake: installs build/release into a folder of its own, strips it, and writes a
# tarball with its sha256 to FOLDER (default: dist).
if(NOT OUT)
  set(OUT ${CMAKE_CURRENT_SOURCE_DIR}/dist)
endif()
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
file(STRINGS ${root}/build/release/CMakeCache.txt line REGEX "^CMAKE_PROJECT_VERSION:")
string(REGEX REPLACE ".*=" "" version "${line}")
cmake_host_system_information(RESULT machine QUERY OS_PLATFORM)
set(name gdnctl-${version}-linux-${machine})

file(REMOVE_RECURSE ${OUT}/${name} ${OUT}/${name}.tar.gz)
file(MAKE_DIRECTORY ${OUT})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${root}/build/release --strip --prefix ${OUT}/${name}
                COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
execute_process(COMMAND tar --sort=name --owner=0 --group=0 --numeric-owner -C ${OUT} -czf ${OUT}/${name}.tar.gz ${name}
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${OUT}/${name})
file(SHA256 ${OUT}/${name}.tar.gz sum)
file(WRITE ${OUT}/${name}.tar.gz.sha256 "${sum}  ${name}.tar.gz\n")
message("[dev] wrote ${OUT}/${name}.tar.gz")
