// SPDX-License-Identifier: Apache-2.0
/* Preloaded into User Mode Linux, whose 6.1 writes the extended registers of its
 * processes back by PTRACE_SETREGSET of NT_X86_XSTATE with a buffer of a fixed size. A
 * CPU with more state than that (AMX) makes the machine's kernel refuse the shorter
 * buffer, and User Mode Linux aborts. Here a short buffer is written over what is there,
 * and the whole is written back. Where it is long enough nothing changes. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* More than any CPU has: AMX needs about 11 KiB. */
enum { MOST = 1 << 14 };

static long call(long request, pid_t pid, void *addr, void *data)
{
	return syscall(SYS_ptrace, request, pid, addr, data);
}

static long set_xstate(pid_t pid, void *addr, struct iovec *given)
{
	static __thread char buffer[MOST] __attribute__((aligned(64)));
	struct iovec whole = { buffer, sizeof(buffer) };

	if (call(PTRACE_GETREGSET, pid, addr, &whole) || whole.iov_len <= given->iov_len)
		return call(PTRACE_SETREGSET, pid, addr, given);
	memcpy(buffer, given->iov_base, given->iov_len);
	return call(PTRACE_SETREGSET, pid, addr, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list list;
	va_start(list, request);
	pid_t pid = va_arg(list, pid_t);
	void *addr = va_arg(list, void *), *data = va_arg(list, void *);
	va_end(list);

	if (request == PTRACE_SETREGSET && (uintptr_t)addr == NT_X86_XSTATE)
		return set_xstate(pid, addr, data);
	/* The system call stores the word that the library's function returns. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA ||
	    request == PTRACE_PEEKUSER) {
		long word, result = call(request, pid, addr, &word);
		return result < 0 ? result : word;
	}
	return call(request, pid, addr, data);
}
