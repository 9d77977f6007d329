// What the parts of the pretended CUDA share: the log, the virtual clock, devices.
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 16

// ---- The log (log.c). KINDS in pretended_gpu.py names these in the same order.
enum Kind {
  LAUNCH,
  GEMM,
  CONV,
  RNN,
  DNN,
  NCCL,
  H2D,
  D2H,
  D2D,
  P2P,
  MEMSET,
  STREAM_SYNC,
  CTX_SYNC,
  EVENT_SYNC,
  EVENT_QUERY,
  EVENT_RECORD,
  STREAM_WAIT,
  HOST_FUNC,
  MALLOC,
  HOST_MALLOC,
  LIBRARY
};
typedef struct {  // DTYPE in pretended_gpu.py has the same fields.
  int32_t kind, device, peer, pinned;
  uint64_t bytes, stream, thread, ident;  // ident: the event, or of a query 1 if it was ready.
  double time;                            // Real seconds.
  double issue, begin, end;               // Virtual seconds, 0 without the clock.
  double flops;
  int32_t grid[3], block[3], dims[8];
  const char* name;
} Event;
// What a caller knows of a command; the log and the clock fill in the rest.
typedef struct {
  int kind, device, peer, pinned;
  uint64_t bytes;
  void* stream;
  uint64_t ident;
  double flops;
  int grid[3], block[3], dims[8];
  const char* name;
} Command;
Event* log_add(const Command* c, double issue, double begin, double end);
void command(Command c);  // Logs a command and, with the clock, gives it its time.

// ---- Streams and events.
typedef struct {
  int device, priority;
  double ready;
} Stream;  // ready: virtual end of its last command.
typedef struct {
  double time;
  int outstanding;
} CudaEvent;                       // time: virtual, when it is reached.
Stream* stream_of(const void* s);  // The default stream of the device for 0, 1, 2.
int device_of_stream(const void* s);
int device_now(void);
int num_devices(void);

// ---- The virtual clock (clock.c).
extern _Atomic int clock_on;
double clock_thread(void);        // The calling host thread's virtual time.
void clock_wait(double until);    // Blocks the calling thread until then.
void clock_sync(double until);    // The same, and the host's time to notice.
int clock_query(CudaEvent* e);    // Whether the host would see the event as reached.
void clock_forget(CudaEvent* e);  // The event is recorded anew or destroyed.
void clock_call(double at, void (*f)(void*), void* data);      // A host function of a stream.
void clock_collective(const char* key, int ranks, Command c);  // Returns when all ranks have come.
