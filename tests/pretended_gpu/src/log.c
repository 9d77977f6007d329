// The log: an array of commands that Python reads.
#include "common.h"

#define MAX_COMMANDS (1 << 20)
static Command* commands;
static _Atomic long num_commands;
static _Atomic int recording;

void command(Command c) {
  if (!recording) return;
  long index = num_commands++;
  if (index < MAX_COMMANDS) commands[index] = c;
}

EXPORT void pretended_record(int on) {
  if (!commands)
    commands = mmap(0, sizeof(Command) * MAX_COMMANDS, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (on) num_commands = 0;
  recording = on;
}
EXPORT long pretended_num_commands(void) {
  long n = num_commands;
  return n < MAX_COMMANDS ? n : MAX_COMMANDS;
}
EXPORT const Command* pretended_commands(void) { return commands; }
