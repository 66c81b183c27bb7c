// SPDX-License-Identifier: MIT
// Decodes and answers rdma_cm commands. The checks are those of drivers/infiniband/core/ucma.c in the same order; in
// addition read_command() refuses a command that is shorter than its structure.
#include "kernel-abi/rdma_cm/cm_commands.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "kernel-abi/caller/user_memory.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/id/cm_query.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/process/log.h"

namespace uiw::kernel_abi {
namespace {

constexpr int kMaxBacklog = 1024;  // the kernel's default of net.rdma_ucm.max_backlog
constexpr std::uint32_t kMaxOptionSize = 1U << 16;

// Commands of rdma-core 59 and later; the installed headers may be older.
constexpr std::uint32_t kResolveIbService = 23;
constexpr std::uint32_t kWriteCmEvent = 24;
constexpr std::uint32_t kQueryIbService = 3;
struct ResolveIbService {
  __u32 id;
  __u32 reserved;
  __u64 service_id;
  __u8 service_name[64];
  __u32 flags;
  __u32 reserved2;
};
struct WriteCmEvent {
  __u32 id;
  __u32 reserved;
  __u32 event;
  __u32 status;
  __u64 argument;  // the rest of the kernel's union is not used
};
constexpr std::size_t kWriteCmEventParameters = sizeof(rdma_ucm_ud_param);
static_assert(offsetof(WriteCmEvent, argument) == 16);

struct Request {
  const UiwHost& host;
  std::shared_ptr<CmChannel> channel;
  const std::uint8_t* payload;
  std::size_t in;
  std::size_t out;
};

// The functions below that return an int return 0 or an errno.

template <typename Command>
int read_command(const Request& request, Command& command, std::size_t least = sizeof(Command)) {
  std::memset(&command, 0, sizeof command);
  if (request.in < least) return EINVAL;
  return copy_from_user(&command, request.payload, std::min(request.in, sizeof command));
}

template <typename Response>
int write_response(const Request& request, std::uint64_t address, const Response& response) {
  return copy_to_user(address, &response, std::min(request.out, sizeof response));
}

// Finds the id and runs `action` on it, with the id's command lock held. Does not run `action` on an id that was
// destroyed or cannot be used any more (CmRegistry::check_alive()).
template <typename Action>
int with_id(const Request& request, std::uint32_t number, Action action) {
  CmRegistry& registry = CmRegistry::instance();
  std::shared_ptr<CmId> id;
  if (const int error = registry.find_id(request.channel, number, id); error != 0) return error;
  const LockGuard command(id->command_lock());
  const int error = registry.check_alive(*id);
  return error != 0 ? error : action(*id);
}

int create_id(const Request& request) {
  if (request.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  rdma_ucm_create_id command;
  if (const int error = read_command(request, command); error != 0) return error;
  CmIdParameters parameters = {command.uid, command.ps, command.qp_type};
  switch (command.ps) {
    case RDMA_PS_TCP: parameters.qp_type = IBV_QPT_RC; break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: parameters.qp_type = IBV_QPT_UD; break;
    case RDMA_PS_IB: break;
    default: return EINVAL;
  }
  CmRegistry& registry = CmRegistry::instance();
  const std::shared_ptr<CmId> id = registry.create_id(request.channel, parameters);
  if (id == nullptr) return EBADF;
  const rdma_ucm_create_id_resp response = {id->number()};
  const int error = write_response(request, command.response, response);
  std::uint32_t unseen;
  if (error != 0) registry.destroy_id(request.channel, id->number(), unseen);
  return error;
}

int destroy_id(const Request& request) {
  if (request.out < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  rdma_ucm_destroy_id command;
  if (const int error = read_command(request, command); error != 0) return error;
  rdma_ucm_destroy_id_resp response = {};
  const int error = CmRegistry::instance().destroy_id(request.channel, command.id, response.events_reported);
  return error != 0 ? error : write_response(request, command.response, response);
}

// The address in an older command. The command's field for it is a sockaddr_in6, which may also contain a sockaddr_in.
// The result has family 0 if the field contains neither.
sockaddr_storage old_address(const sockaddr_in6& octets) {
  const sockaddr_storage address = address_from(&octets, sizeof octets);
  return address.ss_family == AF_IB ? sockaddr_storage{} : address;
}

// Whether `size` is the size of an address of this family. The newer commands contain a size beside each address.
bool is_sized(const sockaddr_storage& address, std::size_t size) {
  return size != 0 && size == address_size(address.ss_family);
}

int bind_ip(const Request& request) {
  rdma_ucm_bind_ip command;
  if (const int error = read_command(request, command); error != 0) return error;
  const sockaddr_storage address = old_address(command.addr);
  if (address.ss_family == 0) return EINVAL;
  return with_id(request, command.id, [&](CmId& id) { return id.bind(address); });
}

int bind(const Request& request) {
  rdma_ucm_bind command;
  if (const int error = read_command(request, command); error != 0) return error;
  const sockaddr_storage address = address_from(&command.addr, sizeof command.addr);
  if (command.reserved != 0 || !is_sized(address, command.addr_size)) return EINVAL;
  return with_id(request, command.id, [&](CmId& id) { return id.bind(address); });
}

int resolve_ip(const Request& request) {
  rdma_ucm_resolve_ip command;
  if (const int error = read_command(request, command); error != 0) return error;
  const sockaddr_storage source = old_address(command.src_addr);
  const sockaddr_storage destination = old_address(command.dst_addr);
  if (destination.ss_family == 0 || (command.src_addr.sin6_family != 0 && source.ss_family == 0)) return EINVAL;
  return with_id(request, command.id, [&](CmId& id) {
    return id.resolve_addr(source, destination, std::chrono::milliseconds(command.timeout_ms));
  });
}

int resolve_addr(const Request& request) {
  rdma_ucm_resolve_addr command;
  if (const int error = read_command(request, command); error != 0) return error;
  const sockaddr_storage source = address_from(&command.src_addr, command.src_size == 0 ? 0 : sizeof command.src_addr);
  const sockaddr_storage destination = address_from(&command.dst_addr, sizeof command.dst_addr);
  if (command.reserved != 0 || !is_sized(destination, command.dst_size)) return EINVAL;
  if (command.src_size != 0 && !is_sized(source, command.src_size)) return EINVAL;
  return with_id(request, command.id, [&](CmId& id) {
    return id.resolve_addr(source, destination, std::chrono::milliseconds(command.timeout_ms));
  });
}

int resolve_route(const Request& request) {
  rdma_ucm_resolve_route command;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [](CmId& id) { return id.resolve_route(); });
}

int query_route(const Request& request) {
  rdma_ucm_query command;
  if (request.out < offsetof(rdma_ucm_query_route_resp, ibdev_index)) return ENOSPC;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [&](const CmId& id) {
    return write_response(request, command.response, kernel_abi::query_route(id.route()));
  });
}

// Writes the number of paths (1, or 0 if there is no path, as always on iWARP) and the path. As in the kernel, the path
// is written only if there is more room than it needs.
int query_path(const Request& request, std::uint64_t response_address, const std::optional<RocePath>& path) {
  rdma_ucm_query_path_resp count = {};
  if (request.out < sizeof count) return ENOSPC;
  count.num_paths = path ? 1 : 0;
  const int error = write_response(request, response_address, count);
  if (error != 0 || !path || request.out <= sizeof count + sizeof(ib_path_rec_data)) return error;
  return write_response(request, response_address + sizeof count, path_record(*path));
}

int query(const Request& request) {
  rdma_ucm_query command;
  if (const int error = read_command(request, command); error != 0) return error;
  const bool fits = request.out >= offsetof(rdma_ucm_query_addr_resp, ibdev_index);
  return with_id(request, command.id, [&](const CmId& id) -> int {
    switch (command.option) {
      case RDMA_USER_CM_QUERY_ADDR:
        return fits ? write_response(request, command.response, kernel_abi::query_addr(id.route())) : ENOSPC;
      case RDMA_USER_CM_QUERY_GID:
        return fits ? write_response(request, command.response, kernel_abi::query_gid(id.route())) : ENOSPC;
      case RDMA_USER_CM_QUERY_PATH: return query_path(request, command.response, id.route().path());
      case kQueryIbService:  // service records come from a subnet administrator, which does not exist here
        return query_path(request, command.response, std::nullopt);
      default: return ENOSYS;
    }
  });
}

int listen(const Request& request) {
  rdma_ucm_listen command;
  if (const int error = read_command(request, command); error != 0) return error;
  const bool usable = command.backlog > 0 && command.backlog <= kMaxBacklog;
  const int backlog = usable ? static_cast<int>(command.backlog) : kMaxBacklog;
  return with_id(request, command.id, [&](CmId& id) { return id.listener().listen(backlog); });
}

int connect(const Request& request) {
  rdma_ucm_connect command;
  // In librdmacm before rdma-core 30 this command ends before `ece`.
  if (const int error = read_command(request, command, offsetof(rdma_ucm_connect, ece)); error != 0) return error;
  if (command.conn_param.valid == 0) return EINVAL;
  return with_id(request, command.id, [&](CmId& id) { return id.connection().connect(command.conn_param); });
}

int accept(const Request& request) {
  rdma_ucm_accept command;
  if (const int error = read_command(request, command, offsetof(rdma_ucm_accept, ece)); error != 0) return error;
  return with_id(request, command.id, [&](CmId& id) {
    CmConnection& connection = id.connection();
    return command.conn_param.valid != 0 ? connection.accept(command.conn_param, command.uid)
                                         : connection.accept_response();
  });
}

int reject(const Request& request) {
  rdma_ucm_reject command;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [&](CmId& id) {
    return id.connection().reject(command.private_data, command.private_data_len, command.reason);
  });
}

int disconnect(const Request& request) {
  rdma_ucm_disconnect command;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [](CmId& id) { return id.connection().disconnect(); });
}

int init_qp_attr(const Request& request) {
  if (request.out < sizeof(ib_uverbs_qp_attr)) return ENOSPC;
  rdma_ucm_init_qp_attr command;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [&](const CmId& id) {
    ib_uverbs_qp_attr response;
    const int error = kernel_abi::init_qp_attr(id, command.qp_state, response);
    return error != 0 ? error : write_response(request, command.response, response);
  });
}

int get_event(const Request& request) {
  rdma_ucm_get_event command;
  // librdmacm before rdma-core 30 leaves no room for `ece`. If it is a 32-bit library, it leaves no room for the
  // padding before `ece`, either.
  if (request.out < offsetof(rdma_ucm_event_resp, reserved)) return ENOSPC;
  if (const int error = read_command(request, command); error != 0) return error;
  CmChannel& channel = *request.channel;
  for (;;) {
    std::optional<CmChannel::Waiter> waiter;
    {
      CmEvent event;  // destroyed after the lock is released, since it may have the last reference to an id
      const LockGuard lock(g_registry_lock);
      // If another thread has closed the channel since this call began, no event comes any more. A call that may block
      // then waits for ever, as does a call that was waiting when the channel was closed.
      if (!channel.empty() && !channel.closed()) {
        const int error = write_response(request, command.response, channel.front().response);
        if (error != 0) return error;
        event = channel.take_front();
        event.owner->count_reported(event);
        return 0;
      }
      if (channel.empty()) channel.drop_foreign_tokens();
      if (channel.non_blocking()) return EAGAIN;
      waiter.emplace(channel);
    }
    if (const int error = waiter->wait(); error != 0) return error;
  }
}

template <typename Value>
bool is_exactly(const std::vector<std::uint8_t>& octets, Value& value) {
  if (octets.size() != sizeof value) return false;
  std::memcpy(&value, octets.data(), sizeof value);
  return true;
}

int set_id_option(CmId& id, std::uint32_t name, const std::vector<std::uint8_t>& octets) {
  std::uint8_t small = 0;
  int number = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (!is_exactly(octets, small)) return EINVAL;
      id.route().set_type_of_service(small);
      return 0;
    case RDMA_OPTION_ID_REUSEADDR: return is_exactly(octets, number) ? id.set_reuse_address(number != 0) : EINVAL;
    case RDMA_OPTION_ID_AFONLY: return is_exactly(octets, number) ? id.set_address_family_only(number != 0) : EINVAL;
    case RDMA_OPTION_ID_ACK_TIMEOUT: return is_exactly(octets, small) ? id.route().set_ack_timeout(small) : EINVAL;
    default: return ENOSYS;
  }
}

int set_option(const Request& request) {
  rdma_ucm_set_option command;
  if (const int error = read_command(request, command); error != 0) return error;
  if (command.optlen > kMaxOptionSize) return EINVAL;
  std::vector<std::uint8_t> octets(command.optlen);
  return with_id(request, command.id, [&](CmId& id) -> int {
    const auto* address = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(command.optval));
    if (const int error = copy_from_user(octets.data(), address, octets.size()); error != 0) return error;
    if (command.level == RDMA_OPTION_ID) return set_id_option(id, command.optname, octets);
    if (command.level != RDMA_OPTION_IB || command.optname != RDMA_OPTION_IB_PATH) return ENOSYS;
    return id.set_ib_path(octets);
  });
}

int notify(const Request& request) {
  rdma_ucm_notify command;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [](CmId& id) { return id.notify(); });
}

int join(const Request& request, std::uint32_t number, const sockaddr_storage& address, std::size_t size,
         unsigned flags, std::uint64_t uid, std::uint64_t response_address) {
  if (!is_sized(address, size) || flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
  return with_id(request, number, [&](CmId& id) {
    rdma_ucm_create_id_resp response = {};
    if (const int error = id.groups().join(address, uid, response.id); error != 0) return error;
    const int error = write_response(request, response_address, response);
    std::uint32_t unseen;
    if (error != 0) id.groups().leave(response.id, unseen);
    return error;
  });
}

int join_ip_multicast(const Request& request) {
  if (request.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  rdma_ucm_join_ip_mcast command;
  if (const int error = read_command(request, command); error != 0) return error;
  const sockaddr_storage address = old_address(command.addr);
  return join(request, command.id, address, address_size(address.ss_family), RDMA_MC_JOIN_FLAG_FULLMEMBER, command.uid,
              command.response);
}

int join_multicast(const Request& request) {
  if (request.out < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  rdma_ucm_join_mcast command;
  if (const int error = read_command(request, command); error != 0) return error;
  const sockaddr_storage address = address_from(&command.addr, sizeof command.addr);
  return join(request, command.id, address, command.addr_size, command.join_flags, command.uid, command.response);
}

int leave_multicast(const Request& request) {
  if (request.out < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  rdma_ucm_destroy_id command;
  if (const int error = read_command(request, command); error != 0) return error;
  std::shared_ptr<CmId> id;
  if (const int error = CmRegistry::instance().find_member(request.channel, command.id, id); error != 0) return error;
  rdma_ucm_destroy_id_resp response = {};
  {
    const LockGuard lock(id->command_lock());
    if (const int error = id->groups().leave(command.id, response.events_reported); error != 0) return error;
  }
  return write_response(request, command.response, response);
}

int migrate_id(const Request& request) {
  if (request.out < sizeof(rdma_ucm_migrate_resp)) return ENOSPC;
  rdma_ucm_migrate_id command;
  if (const int error = read_command(request, command); error != 0) return error;
  const std::uint64_t object = request.host.lookup(static_cast<int>(command.fd));
  CmRegistry& registry = CmRegistry::instance();
  const std::shared_ptr<CmChannel> from = object != 0 ? registry.find_channel(object) : nullptr;
  if (from == nullptr) return object != 0 ? EINVAL : ENOENT;
  if (const int error = registry.use(*from); error != 0) return error;
  rdma_ucm_migrate_resp response = {};
  const int error = registry.migrate_id(from, request.channel, command.id, response.events_reported);
  return error != 0 ? error : write_response(request, command.response, response);
}

int resolve_ib_service(const Request& request) {
  ResolveIbService command;
  if (const int error = read_command(request, command); error != 0) return error;
  return with_id(request, command.id, [](CmId& id) { return id.resolve_ib_service(); });
}

int write_cm_event(const Request& request) {
  WriteCmEvent command;
  if (const int error = read_command(request, command, offsetof(WriteCmEvent, argument) + kWriteCmEventParameters);
      error != 0)
    return error;
  return with_id(request, command.id,
                 [&](CmId& id) { return id.write_event(command.event, command.status, command.argument); });
}

struct Command {
  const char* name;
  int (*function)(const Request& request);
};

// Indexed by command number. A command without a function fails with ENOSYS, as in the kernel.
constexpr Command kCommands[] = {
    {"create_id", create_id},
    {"destroy_id", destroy_id},
    {"bind_ip", bind_ip},
    {"resolve_ip", resolve_ip},
    {"resolve_route", resolve_route},
    {"query_route", query_route},
    {"connect", connect},
    {"listen", listen},
    {"accept", accept},
    {"reject", reject},
    {"disconnect", disconnect},
    {"init_qp_attr", init_qp_attr},
    {"get_event", get_event},
    {"get_option", nullptr},
    {"set_option", set_option},
    {"notify", notify},
    {"join_ip_multicast", join_ip_multicast},
    {"leave_multicast", leave_multicast},
    {"migrate_id", migrate_id},
    {"query", query},
    {"bind", bind},
    {"resolve_addr", resolve_addr},
    {"join_multicast", join_multicast},
    {"resolve_ib_service", resolve_ib_service},
    {"write_cm_event", write_cm_event},
};
static_assert(kCommands[RDMA_USER_CM_CMD_GET_OPTION].function == nullptr);
static_assert(kCommands[RDMA_USER_CM_CMD_MIGRATE_ID].function == migrate_id);
static_assert(kCommands[RDMA_USER_CM_CMD_JOIN_MCAST].function == join_multicast);
static_assert(kCommands[kResolveIbService].function == resolve_ib_service &&
              kCommands[kWriteCmEvent].function == write_cm_event);

// Logs an error and returns it. EAGAIN is not logged: it only says that no event was there for a call that does not
// block.
int logged(const Command& command, int error) {
  if (error != 0 && error != EAGAIN) {
    provider::log_event(provider::LogLevel::info, "rdma_cm: %s is refused: %s", command.name,
                        provider::text_of_errno(error));
  }
  return error;
}

}  // namespace

long write_cm_command(const UiwHost& host, std::uint64_t object, const void* data, std::size_t size) {
  rdma_ucm_cmd_hdr header = {};
  if (size < sizeof header) return -EINVAL;
  if (copy_from_user(&header, data, sizeof header) != 0) return -EFAULT;
  if (header.cmd >= std::size(kCommands) || header.in + sizeof header > size) return -EINVAL;
  const Command& command = kCommands[header.cmd];
  if (command.function == nullptr) return -ENOSYS;
  const Request request = {host, CmRegistry::instance().find_channel(object),
                           static_cast<const std::uint8_t*>(data) + sizeof header, header.in, header.out};
  if (request.channel == nullptr) return -EBADF;
  // In the child of a fork a command takes an inherited channel over, at once or when the parent process has ended
  // (CmRegistry::use()). DESTROY_ID does not, since the child may only be cleaning up.
  if (header.cmd != RDMA_USER_CM_CMD_DESTROY_ID) {
    if (const int error = CmRegistry::instance().use(*request.channel); error != 0) return -error;
  }
  const int error = logged(command, command.function(request));
  return error != 0 ? -error : static_cast<long>(size);
}

}  // namespace uiw::kernel_abi
