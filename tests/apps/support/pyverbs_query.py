# SPDX-License-Identifier: MIT
"""pyverbs lists the devices, opens uiw_lo and queries it. Run under uiw."""

from pyverbs.device import Context, get_device_list

names = [device.name.decode() for device in get_device_list()]
assert "uiw_lo" in names, names
with Context(name="uiw_lo") as context:
    attributes = context.query_device()
    assert attributes.max_qp > 0 and attributes.max_sge > 0, str(attributes)
    assert context.query_port(1).state == 4, "the port is not active"  # IBV_PORT_ACTIVE
print("uiw_lo:", attributes.max_qp, "queue pairs")
