-- SPDX-License-Identifier: MIT
-- A postdissector for Wireshark and tshark ("uiws"). It marks the frames by which the two ends of a connection of uiw
-- change from TCP to shared memory, or refuse to: each end sends one frame after the start-up of MPA, and no FPDU
-- follows if both use the memory.
--
--   tshark -X lua_script:uiw_same_host.lua -i lo -Y uiws
--
-- It looks at TCP segments that begin with such a frame. It runs after all dissectors, since the connection belongs to
-- the dissector of MPA. Lua 5.1 to 5.4, as in Wireshark 3 and 4.

local uiws = Proto("uiws", "uiw shared memory")

-- The frame: at offset 0 the key, at 16 the number that the other end has sent over the Unix socket; all zero refuses
-- the memory.
local KEY, SIZE = "uiw shared rings", 32

local f = {
  key = ProtoField.string("uiws.key", "Key"),
  number = ProtoField.bytes("uiws.number", "Number"),
  refused = ProtoField.bool("uiws.refused", "The memory is refused: the connection stays on TCP"),
}
uiws.fields = { f.key, f.number, f.refused }

local payload = Field.new("tcp.payload")

function uiws.dissector(_, pinfo, tree)
  local info = payload()
  if info == nil or info.len < SIZE then return end
  local range = info.range
  if range(0, #KEY):string() ~= KEY then return end
  local number = range(#KEY, SIZE - #KEY)
  local refused = number:bytes():tohex():find("[^0]") == nil
  local top = tree:add(uiws, range(0, SIZE))
  top:add(f.key, range(0, #KEY))
  top:add(f.number, number)
  top:add(f.refused, number, refused)
  pinfo.cols.info:append(refused and ", uiw: shared memory is refused" or ", uiw: goes over to shared memory")
end

register_postdissector(uiws)
