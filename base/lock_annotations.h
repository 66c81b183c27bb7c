// SPDX-License-Identifier: MIT
// Annotations for clang's thread safety analysis (-Wthread-safety): which lock protects a member, which locks a
// function takes, releases or needs. For other compilers they are empty. The attributes are explained at
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html; base/mutex.h has the locks.
#pragma once

#if defined(__clang__)
#define UIW_LOCK_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define UIW_LOCK_ATTRIBUTE(attribute)
#endif

// For a class: it is a lock (CAPABILITY), or a guard that holds a lock while it exists (SCOPED_CAPABILITY).
#define UIW_CAPABILITY(kind) UIW_LOCK_ATTRIBUTE(capability(kind))
#define UIW_SCOPED_CAPABILITY UIW_LOCK_ATTRIBUTE(scoped_lockable)

// For a member: it is used with the lock held.
#define UIW_GUARDED_BY(lock) UIW_LOCK_ATTRIBUTE(guarded_by(lock))

// For a function: it is called with the locks held (REQUIRES), or without them since it takes them itself (EXCLUDES).
#define UIW_REQUIRES(...) UIW_LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define UIW_EXCLUDES(...) UIW_LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))

// For a function that takes locks and returns with them held (ACQUIRE; TRY_ACQUIRE: only if its result is the first
// argument), or releases them (RELEASE). If a member function of a lock or of a guard names no lock, the annotation is
// about the lock itself, or about the lock that the guard holds.
#define UIW_ACQUIRE(...) UIW_LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define UIW_TRY_ACQUIRE(...) UIW_LOCK_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define UIW_RELEASE(...) UIW_LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))

// For a function that tells the analysis that locks are held, if the analysis cannot find this out by itself:
// assume_held() of base/mutex.h.
#define UIW_ASSERT_CAPABILITY(...) UIW_LOCK_ATTRIBUTE(assert_capability(__VA_ARGS__))

// For a function that returns a reference to the lock `lock`.
#define UIW_RETURN_CAPABILITY(lock) UIW_LOCK_ATTRIBUTE(lock_returned(lock))

// For a function that the analysis cannot follow. A comment at the function says why.
#define UIW_NO_THREAD_SAFETY_ANALYSIS UIW_LOCK_ATTRIBUTE(no_thread_safety_analysis)
