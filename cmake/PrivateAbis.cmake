# SPDX-License-Identifier: MIT
# UIW_PRIVATE_ABIS: the private ABIs of libibverbs that plugins are built for, from the list of them.
set(uiw_releases ${CMAKE_SOURCE_DIR}/provider/plugin/abi/releases.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${uiw_releases})
file(STRINGS ${uiw_releases} UIW_PRIVATE_ABIS REGEX "^UIW_PRIVATE_ABI\\(")
list(TRANSFORM UIW_PRIVATE_ABIS REPLACE "^UIW_PRIVATE_ABI\\(([0-9]+),.*" "\\1")
