// The log: an array of events that Python reads.
#include "common.h"

#define MAX_EVENTS (1 << 22)
static Event* events;
static _Atomic long num_events;
static _Atomic int recording;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

Event* log_add(const Command* c, double issue, double begin, double end) {
  static __thread uint64_t thread;
  if (!recording) return 0;
  if (!thread) thread = syscall(SYS_gettid);
  long index = num_events++;
  if (index >= MAX_EVENTS) return 0;
  Event* e = &events[index];
  *e = (Event){.kind = c->kind,
               .device = c->device,
               .peer = c->peer,
               .pinned = c->pinned,
               .bytes = c->bytes,
               .stream = (uint64_t)c->stream,
               .thread = thread,
               .ident = c->ident,
               .time = now(),
               .issue = issue,
               .begin = begin,
               .end = end,
               .flops = c->flops,
               .name = c->name};
  memcpy(e->grid, c->grid, sizeof e->grid);
  memcpy(e->block, c->block, sizeof e->block);
  memcpy(e->dims, c->dims, sizeof e->dims);
  return e;
}

EXPORT void pretended_record(int on) {
  if (!events)
    events = mmap(0, sizeof(Event) * MAX_EVENTS, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (on) num_events = 0;
  recording = on;
}
EXPORT long pretended_num_events(void) {
  long n = num_events;
  return n < MAX_EVENTS ? n : MAX_EVENTS;
}
EXPORT const Event* pretended_events(void) { return events; }
