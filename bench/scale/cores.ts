/** Gives Redis a separate core, as the model has it: next to busy processes, waking up and being woken cost less. */
import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

const LAST = availableParallelism() - 1;

/** Configuration of a Redis server with the last core. */
export const REDIS_CORE: readonly string[] = [`server_cpulist ${LAST}`, `bio_cpulist ${LAST}`, `aof_rewrite_cpulist ${LAST}`];

/** Runs `work` while this process, with what it starts, leaves the last core to Redis. */
export async function withoutRedisCore<Result>(work: () => Promise<Result>): Promise<Result> {
  pin(LAST === 0 ? '0' : `0-${LAST - 1}`);
  try {
    return await work();
  } finally {
    pin(`0-${LAST}`);
  }
}

/** All threads of this process. */
function pin(cores: string): void {
  execFileSync('taskset', ['--all-tasks', '--cpu-list', '--pid', cores, String(process.pid)], { stdio: 'ignore' });
}
