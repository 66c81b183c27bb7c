# SPDX-License-Identifier: MIT
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
# With libnl-3.0, whose nla_ok reads beyond the messages of hostile programs before 3.5.
pkg_check_modules(NLROUTE REQUIRED IMPORTED_TARGET libnl-route-3.0>=3.5)
pkg_check_modules(DW REQUIRED libdw)
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
