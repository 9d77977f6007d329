// What the parts of the pretended CUDA share: the log and the devices.
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 16

// ---- The log (log.c). KINDS in pretended_gpu.py names these in the same order.
enum Kind {
  LAUNCH,
  GEMM,
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
  LIBRARY
};
typedef struct {         // DTYPE in pretended_gpu.py has the same fields.
  int32_t kind, device;  // device: the one that works, or that sends.
  int32_t peer,
      pinned;        // peer: the receiver of P2P, the number of ranks of NCCL. pinned: host memory.
  uint64_t bytes;    // Of copies and collectives.
  const char* name;  // Of kernels and calls, or 0.
} Command;
void command(Command c);  // Adds a command to the log.

// ---- Devices (cuda.c).
int device_now(void);
int device_of_stream(const void* stream);
int num_devices(void);
