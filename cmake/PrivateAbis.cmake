# SPDX-License-Identifier: MIT
# From the list of releases of rdma-core:
# UIW_PRIVATE_ABIS: the private ABIs of libibverbs that plugins are built for.
# UIW_ABI_RELEASES: each release that providers can distinguish from the one before it, as RELEASE:ABI:FUNCTION. FUNCTION
# is what distinguishes it within its ABI; it is empty for the first.
set(uiw_releases ${CMAKE_SOURCE_DIR}/provider/plugin/abi/releases.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${uiw_releases})
file(STRINGS ${uiw_releases} UIW_PRIVATE_ABIS REGEX "^UIW_PRIVATE_ABI\\(")
list(TRANSFORM UIW_PRIVATE_ABIS REPLACE "^UIW_PRIVATE_ABI\\(([0-9]+),.*" "\\1")
file(STRINGS ${uiw_releases} UIW_ABI_RELEASES REGEX "^UIW_(PRIVATE_ABI|RELEASE_WITHIN_ABI)\\(")
list(TRANSFORM UIW_ABI_RELEASES REPLACE "^UIW_PRIVATE_ABI\\(([0-9]+), *([0-9]+)\\).*" "\\2:\\1:")
list(TRANSFORM UIW_ABI_RELEASES REPLACE
  "^UIW_RELEASE_WITHIN_ABI\\(([0-9]+), *([0-9]+), *([a-z_0-9]+)\\).*" "\\2:\\1:\\3")
