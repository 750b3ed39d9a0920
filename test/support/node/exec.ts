/** Commands in containers, through the API server (`kubectl exec`). */
import { WebSocket } from 'ws';
import type { Access } from '../cluster/kube-request.ts';
import type { Ended } from '../run.ts';

/** The protocol's channels; the first byte of each message. */
const STDOUT = 1;
const STDERR = 2;
const STATUS = 3;
const PROTOCOL = 'v5.channel.k8s.io';

/** Runs a command in a container to its end. `pod` is the pod's path in the API. */
export function execute(access: Access, pod: string, container: string, command: readonly string[]): Promise<Ended> {
  const query = new URLSearchParams([
    ['container', container],
    ['stdout', '1'],
    ['stderr', '1'],
  ]);
  for (const word of command) query.append('command', word);
  const socket = new WebSocket(`${access.server.replace('https', 'wss')}${pod}/exec?${query}`, PROTOCOL, {
    ca: access.ca,
    headers: { Authorization: `Bearer ${access.token}` },
  });
  const text = new Map([STDOUT, STDERR, STATUS].map((channel) => [channel, '']));
  socket.on('message', (data: Buffer) => {
    const channel = data[0] ?? 0;
    text.set(channel, (text.get(channel) ?? '') + data.subarray(1).toString('utf8'));
  });
  return new Promise((done, fail) => {
    socket.once('error', fail);
    socket.once('close', (code, reason) => {
      const status = text.get(STATUS) ?? '';
      if (status === '') fail(new Error(`exec in ${pod} ended with ${code} ${reason}`));
      else done({ code: toExitCode(JSON.parse(status)), stdout: text.get(STDOUT) ?? '', stderr: text.get(STDERR) ?? '' });
    });
  });
}

interface Status {
  readonly status: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason: string; readonly message: string }[] };
}

function toExitCode({ status, message, details }: Status): number {
  if (status === 'Success') return 0;
  const cause = details?.causes?.find(({ reason }) => reason === 'ExitCode');
  if (cause === undefined) throw new Error(message);
  return Number(cause.message);
}
