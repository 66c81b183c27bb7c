# SPDX-License-Identifier: MIT
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(NLROUTE REQUIRED IMPORTED_TARGET libnl-route-3.0)
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
