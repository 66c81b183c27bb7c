-- SPDX-License-Identifier: MIT
-- Dissectors for Wireshark and tshark of the datagrams of uiw's queue pairs of type UD ("uiwd"), and of the look-ups of
-- rdma_cm's port space UDP ("uiwl"), as docs/datagrams.md of uiw defines them. They recognise datagrams by the first
-- four octets, on any UDP port:
--
--   tshark -X lua_script:uiw_datagrams.lua -o udp.try_heuristic_first:TRUE ...
--
-- Lua 5.1 to 5.4, as in Wireshark 3 and 4. Values that a receiver drops get an expert info of severity "Error" or
-- "Warning".

local uiwd = Proto("uiwd", "uiw datagram")

local HEADER, CRC, MULTICAST = 38, 4, 0xFFFFFF
local KINDS = { [0x43] = "Send", [0x45] = "Send with Solicited Event", [0x4F] = "Send with immediate",
                [0x4E] = "Send with immediate and Solicited Event" }
local IMMEDIATE = { [0x4F] = true, [0x4E] = true }

-- The kind in an RDMAP control octet, without reserved bits, which a receiver ignores; nil if it is unknown.
local function kind_of(control)
  if math.floor(control / 64) ~= 1 then return nil end
  local kind = 0x40 + control % 16
  return KINDS[kind] and kind or nil
end

local f = {
  key = ProtoField.string("uiwd.key", "Key"),
  version = ProtoField.uint8("uiwd.version", "Version", base.DEC),
  reserved = ProtoField.uint24("uiwd.reserved", "Reserved", base.HEX),
  destination = ProtoField.uint32("uiwd.destination", "Destination queue pair", base.HEX),
  destination_port = ProtoField.uint16("uiwd.destination_port", "UDP port of the destination", base.DEC),
  multicast = ProtoField.bool("uiwd.multicast", "To a multicast group"),
  source = ProtoField.uint32("uiwd.source", "Source queue pair", base.HEX),
  source_port = ProtoField.uint16("uiwd.source_port", "UDP port of the source", base.DEC),
  qkey = ProtoField.uint32("uiwd.qkey", "Q_Key", base.HEX),
  ddp = ProtoField.uint8("uiwd.ddp", "DDP control", base.HEX),
  ddp_tagged = ProtoField.bool("uiwd.ddp.tagged", "Tagged", 8, nil, 0x80),
  ddp_last = ProtoField.bool("uiwd.ddp.last", "Last", 8, nil, 0x40),
  ddp_reserved = ProtoField.uint8("uiwd.ddp.reserved", "Reserved", base.HEX, nil, 0x3C),
  ddp_version = ProtoField.uint8("uiwd.ddp.version", "DDP version", base.DEC, nil, 0x03),
  rdmap = ProtoField.uint8("uiwd.rdmap", "RDMAP control", base.HEX, KINDS),
  rdmap_version = ProtoField.uint8("uiwd.rdmap.version", "RDMAP version", base.DEC, nil, 0xC0),
  rdmap_reserved = ProtoField.uint8("uiwd.rdmap.reserved", "Reserved", base.HEX, nil, 0x30),
  rdmap_opcode = ProtoField.uint8("uiwd.rdmap.opcode", "Opcode", base.HEX, nil, 0x0F),
  immediate = ProtoField.uint32("uiwd.immediate", "Immediate data", base.HEX),
  stag = ProtoField.uint32("uiwd.invalidate_stag", "Invalidate STag (ignored)", base.HEX),
  queue = ProtoField.uint32("uiwd.queue_number", "Queue number", base.DEC),
  msn = ProtoField.uint32("uiwd.msn", "Message sequence number", base.DEC),
  offset = ProtoField.uint32("uiwd.message_offset", "Message offset", base.DEC),
  payload = ProtoField.bytes("uiwd.payload", "Payload"),
  length = ProtoField.uint32("uiwd.length", "Octets of payload", base.DEC),
  crc = ProtoField.uint32("uiwd.crc", "CRC32c", base.HEX),
  crc_good = ProtoField.bool("uiwd.crc.good", "CRC32c is right"),
}
local e = {
  short = ProtoExpert.new("uiwd.short", "Too short for header and CRC", expert.group.MALFORMED, expert.severity.ERROR),
  value = ProtoExpert.new("uiwd.unexpected", "A receiver drops this value", expert.group.PROTOCOL,
                          expert.severity.WARN),
  port = ProtoExpert.new("uiwd.other_port", "Not the UDP port of this queue pair", expert.group.PROTOCOL,
                         expert.severity.WARN),
  crc = ProtoExpert.new("uiwd.crc.bad", "Wrong CRC", expert.group.CHECKSUM, expert.severity.ERROR),
}
for name, fields in pairs({ fields = f, experts = e }) do
  local list = {}
  for _, one in pairs(fields) do list[#list + 1] = one end
  uiwd[name] = list
end
uiwd.prefs.check_crc = Pref.bool("Check the CRC32c", true)
uiwd.prefs.multicast_port = Pref.uint("UDP port of multicast", 14791, "UIW_MULTICAST_PORT")

-- ---- CRC32c ---------------------------------------------------------------------------------------------------------

-- Wireshark brings one of these libraries along for Lua 5.1 and 5.2. Lua 5.3 and later have the operator ~, which older
-- releases cannot parse; hence load().
local library = bit32 or bit
local bxor = library and library.bxor or load("return function(a, b) return a ~ b end")()
local function xor(a, b) return bxor(a, b) % 4294967296 end -- bit.bxor returns a signed number

local table_of_octets = {}
for octet = 0, 255 do
  local value = octet
  for _ = 1, 8 do
    local odd = value % 2 == 1
    value = math.floor(value / 2)
    if odd then value = xor(value, 0x82F63B78) end
  end
  table_of_octets[octet] = value
end

local function crc32c(octets)
  local crc = 0xFFFFFFFF
  for at = 1, #octets do
    crc = xor(table_of_octets[xor(crc % 256, octets:byte(at))], math.floor(crc / 256))
  end
  return xor(crc, 0xFFFFFFFF)
end

-- ---- Fields ---------------------------------------------------------------------------------------------------------

-- Adds the field, and a note if a receiver drops the value.
local function add(tree, field, range, good, expert_info)
  local item = tree:add(field, range)
  if good == false then item:add_proto_expert_info(expert_info or e.value) end
  return item
end

-- Adds a queue pair's number and the UDP port in it, with a note if that is not the port of the datagram.
local function add_number(tree, field, port_field, range, port)
  local number = range:uint()
  local item = add(tree, field, range, number < MULTICAST)
  local named = math.floor(number / 256) % 65536
  tree:add(port_field, range, named):set_generated()
  if named ~= port then item:add_proto_expert_info(e.port) end
end

local function add_control(tree, buffer)
  local ddp = buffer(20, 1):uint()
  local item = add(tree, f.ddp, buffer(20, 1), ddp % 4 == 1 and math.floor(ddp / 64) == 1)
  for _, field in ipairs({ f.ddp_tagged, f.ddp_last, f.ddp_reserved, f.ddp_version }) do
    item:add(field, buffer(20, 1))
  end
  local kind = kind_of(buffer(21, 1):uint())
  item = add(tree, f.rdmap, buffer(21, 1), kind ~= nil)
  for _, field in ipairs({ f.rdmap_version, f.rdmap_reserved, f.rdmap_opcode }) do item:add(field, buffer(21, 1)) end
  tree:add(kind and IMMEDIATE[kind] and f.immediate or f.stag, buffer(22, 4))
end

-- `fields` and `experts`: those of the protocol.
local function add_crc(tree, buffer, size, fields, experts)
  local range = buffer(size - CRC, CRC)
  local item = tree:add_le(fields.crc, range)
  if not uiwd.prefs.check_crc then return end
  local good = crc32c(buffer:raw(0, size - CRC)) == range:le_uint()
  tree:add(fields.crc_good, range, good):set_generated()
  if not good then item:add_proto_expert_info(experts.crc) end
end

local function dissect(buffer, pinfo, tree)
  local size = buffer:reported_len()
  pinfo.cols.protocol = "UIWD"
  local top = tree:add(uiwd, buffer())
  if size < HEADER + CRC or buffer:len() < HEADER then
    top:add_proto_expert_info(e.short)
    pinfo.cols.info = "uiw datagram, too short"
    return
  end
  add(top, f.key, buffer(0, 4), buffer(0, 4):string() == "uiwd")
  add(top, f.version, buffer(4, 1), buffer(4, 1):uint() == 1)
  add(top, f.reserved, buffer(5, 3), buffer(5, 3):uint() == 0)
  local destination, source = buffer(8, 4):uint(), buffer(12, 4):uint()
  if destination == MULTICAST then
    local item = top:add(f.destination, buffer(8, 4))
    top:add(f.multicast, buffer(8, 4), true):set_generated()
    if pinfo.dst_port ~= uiwd.prefs.multicast_port then item:add_proto_expert_info(e.port) end
  else
    add_number(top, f.destination, f.destination_port, buffer(8, 4), pinfo.dst_port)
  end
  add_number(top, f.source, f.source_port, buffer(12, 4), pinfo.src_port)
  top:add(f.qkey, buffer(16, 4))
  add_control(top, buffer)
  add(top, f.queue, buffer(26, 4), buffer(26, 4):uint() == 0)
  top:add(f.msn, buffer(30, 4))
  add(top, f.offset, buffer(34, 4), buffer(34, 4):uint() == 0)
  local payload = size - HEADER - CRC
  top:add(f.length, buffer(0, 0), payload):set_generated()
  local whole = buffer:len() == size -- the capture may have cut the datagram
  local captured = whole and payload or math.min(payload, buffer:len() - HEADER)
  if captured > 0 then top:add(f.payload, buffer(HEADER, captured)) end
  if whole then add_crc(top, buffer, size, f, e) end
  pinfo.cols.info = string.format("%s 0x%06x -> %s, Q_Key 0x%08x, %d octets",
    KINDS[kind_of(buffer(21, 1):uint()) or 0] or "unknown", source,
    destination == MULTICAST and "multicast" or string.format("0x%06x", destination), buffer(16, 4):uint(), payload)
end

uiwd.dissector = dissect
uiwd:register_heuristic("udp", function(buffer, pinfo, tree)
  if buffer:len() < 4 or buffer(0, 4):string() ~= "uiwd" then return false end
  dissect(buffer, pinfo, tree)
  return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(uiwd)

-- ---- Look-ups of services -------------------------------------------------------------------------------------------

local uiwl = Proto("uiwl", "uiw look-up of a service")

local LOOKUP_HEADER, MOST_DATA = 24, 255
local LOOKUPS = { [1] = "Request", [2] = "Reply", [3] = "Rejection" }

local g = {
  key = ProtoField.string("uiwl.key", "Key"),
  version = ProtoField.uint8("uiwl.version", "Version", base.DEC),
  kind = ProtoField.uint8("uiwl.kind", "Kind", base.DEC, LOOKUPS),
  size = ProtoField.uint16("uiwl.size", "Octets of private data", base.DEC),
  request = ProtoField.uint64("uiwl.request", "Request", base.HEX),
  number = ProtoField.uint32("uiwl.qp", "Queue pair of the service", base.HEX),
  qkey = ProtoField.uint32("uiwl.qkey", "Q_Key", base.HEX),
  data = ProtoField.bytes("uiwl.private_data", "Private data"),
  crc = ProtoField.uint32("uiwl.crc", "CRC32c", base.HEX),
  crc_good = ProtoField.bool("uiwl.crc.good", "CRC32c is right"),
}
local h = {
  size = ProtoExpert.new("uiwl.wrong_size", "Not as long as it says", expert.group.MALFORMED, expert.severity.ERROR),
  value = ProtoExpert.new("uiwl.unexpected", "A receiver drops this value", expert.group.PROTOCOL,
                          expert.severity.WARN),
  crc = ProtoExpert.new("uiwl.crc.bad", "Wrong CRC", expert.group.CHECKSUM, expert.severity.ERROR),
}
for name, fields in pairs({ fields = g, experts = h }) do
  local list = {}
  for _, one in pairs(fields) do list[#list + 1] = one end
  uiwl[name] = list
end

local function dissect_lookup(buffer, pinfo, tree)
  local size = buffer:reported_len()
  pinfo.cols.protocol = "UIWL"
  local top = tree:add(uiwl, buffer())
  if size < LOOKUP_HEADER + CRC or buffer:len() < LOOKUP_HEADER then
    top:add_proto_expert_info(h.size)
    pinfo.cols.info = "uiw look-up, too short"
    return
  end
  local kind, data = buffer(5, 1):uint(), buffer(6, 2):uint()
  add(top, g.key, buffer(0, 4))
  add(top, g.version, buffer(4, 1), buffer(4, 1):uint() == 1, h.value)
  add(top, g.kind, buffer(5, 1), LOOKUPS[kind] ~= nil, h.value)
  add(top, g.size, buffer(6, 2), data <= MOST_DATA and data == size - LOOKUP_HEADER - CRC, h.size)
  top:add(g.request, buffer(8, 8))
  local number, qkey = buffer(16, 4):uint(), buffer(20, 4):uint()
  add(top, g.number, buffer(16, 4), kind == 2 and number < MULTICAST or number == 0, h.value)
  add(top, g.qkey, buffer(20, 4), kind == 2 or qkey == 0, h.value)
  local there = math.min(size - LOOKUP_HEADER - CRC, buffer:len() - LOOKUP_HEADER)
  if there > 0 then top:add(g.data, buffer(LOOKUP_HEADER, there)) end
  if buffer:len() == size then add_crc(top, buffer, size, g, h) end
  pinfo.cols.info = string.format("%s%s", LOOKUPS[kind] or "unknown",
    kind == 2 and string.format(": queue pair 0x%06x, Q_Key 0x%08x", number, qkey) or "")
end

uiwl.dissector = dissect_lookup
uiwl:register_heuristic("udp", function(buffer, pinfo, tree)
  if buffer:len() < 4 or buffer(0, 4):string() ~= "uiwl" then return false end
  dissect_lookup(buffer, pinfo, tree)
  return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(uiwl)
