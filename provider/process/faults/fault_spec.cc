// SPDX-License-Identifier: MIT
#include "provider/process/faults/fault_spec.h"

#include <infiniband/verbs.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>

namespace uiw::provider {

namespace {

struct Name {
  std::string_view name;
  int value;
};

constexpr Name kStatuses[] = {
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
    {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
    {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
    {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
    {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
    {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR},
    {"REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
    {"INV_EECN_ERR", IBV_WC_INV_EECN_ERR},
    {"INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR},
    {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
    {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
};

// The asynchronous events that a rule may name: those of a queue pair, a port or the device, but none of a completion
// queue or a shared receive queue.
constexpr Name kEvents[] = {
    {"QP_FATAL", IBV_EVENT_QP_FATAL},           {"QP_REQ_ERR", IBV_EVENT_QP_REQ_ERR},
    {"QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR}, {"COMM_EST", IBV_EVENT_COMM_EST},
    {"SQ_DRAINED", IBV_EVENT_SQ_DRAINED},       {"PATH_MIG", IBV_EVENT_PATH_MIG},
    {"PATH_MIG_ERR", IBV_EVENT_PATH_MIG_ERR},   {"DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL},
    {"PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE},     {"PORT_ERR", IBV_EVENT_PORT_ERR},
    {"LID_CHANGE", IBV_EVENT_LID_CHANGE},       {"PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE},
    {"SM_CHANGE", IBV_EVENT_SM_CHANGE},         {"CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
    {"GID_CHANGE", IBV_EVENT_GID_CHANGE},
};

constexpr Name kErrors[] = {
    {"EACCES", EACCES}, {"EAGAIN", EAGAIN}, {"EBUSY", EBUSY},           {"EFAULT", EFAULT},       {"EINTR", EINTR},
    {"EINVAL", EINVAL}, {"EIO", EIO},       {"EMFILE", EMFILE},         {"ENODEV", ENODEV},       {"ENOMEM", ENOMEM},
    {"ENOSPC", ENOSPC}, {"ENOTTY", ENOTTY}, {"EOPNOTSUPP", EOPNOTSUPP}, {"ETIMEDOUT", ETIMEDOUT}, {"EPERM", EPERM},
};

// Signals that a rule may name if the program does not use them.
constexpr Name kSignals[] = {
    {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"WINCH", SIGWINCH}, {"URG", SIGURG}, {"PWR", SIGPWR},
};

// The calls that a rule may name: open_device, and operations of libibverbs' table.
constexpr const char* kCalls[] = {
    "advise_mr",       "alloc_dm",      "alloc_dmah",      "alloc_mw",      "alloc_null_mr",    "alloc_parent_domain",
    "alloc_pd",        "alloc_td",      "attach_mcast",    "create_ah",     "create_cq",        "create_cq_ex",
    "create_qp",       "create_qp_ex",  "create_srq",      "create_srq_ex", "dealloc_dmah",     "dealloc_mw",
    "dealloc_pd",      "dealloc_td",    "dereg_mr",        "destroy_ah",    "destroy_cq",       "destroy_qp",
    "destroy_srq",     "detach_mcast",  "free_dm",         "import_dm",     "import_mr",        "import_pd",
    "modify_cq",       "modify_qp",     "modify_srq",      "open_device",   "poll_cq",          "post_recv",
    "post_send",       "post_srq_recv", "query_device_ex", "query_port",    "query_port_speed", "query_qp",
    "query_rt_values", "query_srq",     "reg_dm_mr",       "reg_dmabuf_mr", "reg_mr",           "reg_mr_ex",
    "req_notify_cq",   "rereg_mr",      "resize_cq",
};

constexpr std::uint64_t kLongestDelay = 600'000;

std::string capitals(std::string_view text) {
  std::string upper;
  for (const char letter : text) {
    upper += letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return upper;
}

// Returns the value of the entry of `names` that `text` names, or nullopt. Before the look-up, one of `prefixes` is
// removed from `text`, lower case becomes upper case, and "-" becomes "_".
std::optional<int> find(std::span<const Name> names, std::string_view text,
                        std::initializer_list<std::string_view> prefixes) {
  const std::string wanted = capitals(text);
  std::string_view name = wanted;
  for (const std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  const auto found = std::find_if(names.begin(), names.end(), [&](const Name& one) { return one.name == name; });
  if (found == names.end()) return std::nullopt;
  return found->value;
}

bool number(std::string_view text, std::uint64_t least, std::uint64_t most, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most;
}

bool parse_time(std::string_view text, FaultRule& rule) {
  if (const auto signal = find(kSignals, text, {"SIG"})) {
    rule.time = FaultTime::signal;
    rule.number = static_cast<std::uint64_t>(*signal);
    return true;
  }
  rule.time = FaultTime::once;
  if (text.ends_with('+')) {
    rule.time = FaultTime::from;
    text.remove_suffix(1);
  } else if (text.starts_with("every:")) {
    rule.time = FaultTime::every;
    text.remove_prefix(6);
  } else if (text.starts_with("random:")) {
    rule.time = FaultTime::random;
    text.remove_prefix(7);
  }
  return number(text, 1, ~std::uint64_t{0}, rule.number);
}

// Parses the part of a rule after "="; `name` is the part before it. Returns false if the value is wrong. `known`
// becomes false if `name` is neither a kind of fault nor a call that can fail.
bool parse_value(const std::string& name, std::string_view value, FaultRule& rule, bool& known) {
  std::optional<int> found;
  known = true;
  if (name == "send" || name == "recv") {
    rule.kind = name == "send" ? FaultKind::send : FaultKind::receive;
    found = find(kStatuses, value, {"IBV_WC_"});
  } else if (name == "event") {
    rule.kind = FaultKind::event;
    found = find(kEvents, value, {"IBV_EVENT_"});
  } else if (name == "delay") {
    rule.kind = FaultKind::delay;
    std::uint64_t time = 0;
    if (value.ends_with("ms")) value.remove_suffix(2);
    if (number(value, 1, kLongestDelay, time)) found = static_cast<int>(time);
  } else {
    rule.kind = FaultKind::call;
    rule.call = name.starts_with("ibv_") ? name.substr(4) : name;
    known = std::find(std::begin(kCalls), std::end(kCalls), rule.call) != std::end(kCalls);
    found = find(kErrors, value, {});
  }
  rule.value = found.value_or(0);
  return found.has_value();
}

// `first` is the part of `text` before the first `separator`, and `rest` the part after it. Without a separator `first`
// is all of `text`.
struct Parts {
  Parts(std::string_view text, char separator)
      : first(text.begin(), std::find(text.begin(), text.end(), separator)), separated(first.size() < text.size()) {
    if (separated) rest = text.substr(first.size() + 1);
  }
  std::string_view first, rest;
  bool separated;
};

std::string wrong(std::string_view rule, const char* why) { return "'" + std::string(rule) + "' " + why; }

// Adds one rule to the plan. Returns an empty string, or a message about what is wrong.
std::string parse_rule(std::string_view text, FaultPlan& plan) {
  const Parts when(text, '@'), what(when.first, '=');
  std::string name;
  for (const char letter : what.first) {
    name += letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  if (name == "seed") {
    return !when.separated && number(what.rest, 0, ~std::uint64_t{0}, plan.seed) ? "" : wrong(text, "has no number");
  }
  FaultRule rule;
  rule.text = text;
  if ((name == "disconnect" || name == "lost_event") && !what.separated) {
    rule.kind = name == "disconnect" ? FaultKind::disconnect : FaultKind::lost_event;
  } else {
    bool known;
    const bool valid = parse_value(name, what.rest, rule, known);
    if (!known) return wrong(text, "is no fault, and no call of libibverbs that can fail");
    if (!valid) return wrong(text, "has no status, event, errno or time that is known behind '='");
  }
  if (when.separated && !parse_time(when.rest, rule)) {
    return wrong(text, "has something else than N, N+, every:N, random:N or a signal (USR1, USR2, HUP...) behind '@'");
  }
  plan.rules.push_back(std::move(rule));
  return "";
}

}  // namespace

std::string parse_faults(std::string_view text, FaultPlan& plan) {
  plan = {};
  while (!text.empty()) {
    const Parts parts(text, ',');
    if (std::string error = parse_rule(parts.first, plan); !error.empty()) return error;
    text = parts.rest;
  }
  return "";
}

std::span<const char* const> fault_calls() { return kCalls; }

}  // namespace uiw::provider
