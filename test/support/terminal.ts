/** A program on a pseudo-terminal, with a user who answers its prompts. */
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';

/** Types each answer at the next prompt (a colon), then reads to the end, and exits as the program did. */
const SCRIPT = `
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
text = b''
answers = sys.stdin.read()
for answer in answers.split('|') if answers else []:
    while not text.rstrip().endswith(b':'):
        text += os.read(fd, 1024)
    text += b' '
    os.write(fd, answer.encode())
    text += b'>'
try:
    while True:
        more = os.read(fd, 1024)
        if not more: break
        text += more
except OSError:
    pass
sys.stdout.write(text.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`;

/** Runs a program to its end. `answers` are separated by `|`; `env` is its whole environment. */
export function runOnTerminal(
  command: readonly string[],
  { answers = '', env = process.env }: { readonly answers?: string; readonly env?: NodeJS.ProcessEnv } = {},
): SpawnSyncReturns<string> {
  return spawnSync('python3', ['-c', SCRIPT, ...command], { encoding: 'utf8', input: answers, env });
}
