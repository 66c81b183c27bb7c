# SPDX-License-Identifier: MIT
# At installation: writes libuiw.pc with the directories of the prefix, which is known only then, and installs it. Takes
# version, libdir and includedir (these may be relative to the prefix), template, and file_dir (where to write).
foreach(folder libdir includedir)
  cmake_path(ABSOLUTE_PATH ${folder} BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE)
endforeach()
configure_file("${template}" "${file_dir}/libuiw.pc" @ONLY)
file(INSTALL DESTINATION "${libdir}/pkgconfig" TYPE FILE FILES "${file_dir}/libuiw.pc")
