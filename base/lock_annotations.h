// SPDX-License-Identifier: MIT
// What clang's thread safety analysis (-Wthread-safety) reads: which lock protects a member, which locks a function
// takes, gives up or needs. Other compilers see nothing of it. https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
// says what each attribute means; base/mutex.h has the locks.
#pragma once

#if defined(__clang__)
#define UIW_LOCK_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define UIW_LOCK_ATTRIBUTE(attribute)
#endif

// Of a class: a lock, and a guard that holds one while it exists.
#define UIW_CAPABILITY(kind) UIW_LOCK_ATTRIBUTE(capability(kind))
#define UIW_SCOPED_CAPABILITY UIW_LOCK_ATTRIBUTE(scoped_lockable)

// Of a member: it is used with the lock held.
#define UIW_GUARDED_BY(lock) UIW_LOCK_ATTRIBUTE(guarded_by(lock))

// Of a function: it is called with the locks held (REQUIRES), or without them since it takes them itself (EXCLUDES).
#define UIW_REQUIRES(...) UIW_LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define UIW_EXCLUDES(...) UIW_LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))

// Of a function that takes locks and returns with them, or gives them up; in a lock or a guard, without arguments, its
// own.
#define UIW_ACQUIRE(...) UIW_LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define UIW_TRY_ACQUIRE(...) UIW_LOCK_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define UIW_RELEASE(...) UIW_LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))

// Of a function that says that locks are held where the analysis cannot see it: see assume_held() of base/mutex.h.
#define UIW_ASSERT_CAPABILITY(...) UIW_LOCK_ATTRIBUTE(assert_capability(__VA_ARGS__))

// Of a function that returns a reference to this lock.
#define UIW_RETURN_CAPABILITY(lock) UIW_LOCK_ATTRIBUTE(lock_returned(lock))

// Of a function that the analysis cannot follow. A comment says why.
#define UIW_NO_THREAD_SAFETY_ANALYSIS UIW_LOCK_ATTRIBUTE(no_thread_safety_analysis)
