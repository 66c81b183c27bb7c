// SPDX-License-Identifier: MIT
// Queue pair numbers of 24 bits: the upper 16 bits are a TCP port of this process (qp_port.h), the lower 8 bits are a
// slot. Each number belongs to one queue pair or DatagramPort at a time, and is not used again soon. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>

namespace uiw::provider {

class Attachable;
class Numbered;

// Takes a number for `qp`, which must remain live until hide_qp() was called and a grace period has ended. Returns 0 if
// no number is free and no port for further numbers can be reserved. Throws std::bad_alloc.
std::uint32_t take_qp_number(Numbered& qp);
// The object that has this number, or null. Called inside a ReadSection; the result is valid until its end.
Numbered* find_numbered(std::uint32_t number);
// The endpoint with this number, as find_numbered(); null if the object cannot have a stream.
Attachable* find_attachable(std::uint32_t number);
// From here on find_numbered() does not return the object of this number. The caller must then wait for threads that
// have already found it (wait_for_readers()).
void hide_qp(std::uint32_t number);
void free_qp_number(std::uint32_t number);
// Calls the function for each object that can be found, one after the other, with its number. An object may be visited
// twice if numbers are freed meanwhile.
void for_each_numbered(const std::function<void(std::uint32_t, Numbered&)>& function);

// lock_qp_numbers() takes the lock of the table before a fork. In the parent unlock_qp_numbers() releases the lock
// after the fork. In the child forget_qp_numbers() leaves the parent's numbers to the parent and releases the lock; new
// queue pairs get numbers of their own.
void lock_qp_numbers();
void unlock_qp_numbers();
void forget_qp_numbers();

}  // namespace uiw::provider
