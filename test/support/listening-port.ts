/** Where a gate that was started as a process listens. */
import type { Readable } from 'node:stream';

/** The data port of the `listening` line of its log, or its admin port. Rejects if the process ends before. */
export function readListeningPort(stdout: Readable, name: 'port' | 'adminPort' = 'port'): Promise<number> {
  return new Promise((resolve, reject) => {
    let text = '';
    stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      const line = text
        .split('\n')
        .slice(0, -1)
        .find((each) => each.includes('"listening"'));
      if (line !== undefined) resolve((JSON.parse(line) as Record<typeof name, number>)[name]);
    });
    stdout.once('end', () => reject(new Error(`the gate ended before it listened: ${text}`)));
  });
}
