# SPDX-License-Identifier: MIT
# At installation: writes uiw.driver and puts it where libibverbs looks, /etc/libibverbs.d, or, under a prefix outside
# /usr, into etc/libibverbs.d there. Takes stock_dir (libibverbs' plugin directory), provider_dir (ours), conf_dir (the
# builder's choice, may be empty) and file_dir (where to write).
cmake_path(ABSOLUTE_PATH provider_dir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE)
if(provider_dir STREQUAL stock_dir)
  set(driver uiw)
else()
  set(driver "${provider_dir}/libuiw")
endif()
file(WRITE "${file_dir}/uiw.driver" "driver ${driver}\n")

if(conf_dir STREQUAL "")
  if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$" OR CMAKE_INSTALL_PREFIX MATCHES "^/?$")
    set(conf_dir /etc/libibverbs.d)
  else()
    set(conf_dir "${CMAKE_INSTALL_PREFIX}/etc/libibverbs.d")
  endif()
endif()
cmake_path(ABSOLUTE_PATH conf_dir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
file(INSTALL DESTINATION "${conf_dir}" TYPE FILE FILES "${file_dir}/uiw.driver")
