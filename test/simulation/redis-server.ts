/** A simulated Redis server: speaks RESP to the real client over simulated sockets, and can be stopped, restarted and failed over. */
import { createHash } from 'node:crypto';
import type { Network } from './network.ts';
import type { ModelReply, RedisModel } from './redis-model.ts';
import type { Owner } from './scheduler.ts';

type Reply = ModelReply | string | null | Error | readonly Reply[];

export const REDIS_PORT = 6379;
const LINE_END = '\r\n';

/** Serves a model until its process is killed. */
export function serveRedis(network: Network, owner: Owner, model: RedisModel): void {
  // Of this process: a restarted server has forgotten the scripts.
  const scripts = new Set<string>();
  network.listen(owner, REDIS_PORT, (socket) => {
    const reader = new CommandReader();
    socket.on('error', () => socket.destroy());
    socket.on('data', (bytes: Buffer) => {
      const replies = reader.push(bytes).map((command) => toText(run(command, model, scripts)));
      if (replies.length > 0 && socket.writable) socket.write(replies.join(''));
    });
    socket.on('end', () => socket.end());
  });
}

function run([name = '', ...args]: readonly string[], model: RedisModel, scripts: Set<string>): Reply {
  switch (name.toLowerCase()) {
    case 'info':
      return 'loading:0\r\nrole:master\r\n';
    case 'config':
      return ['maxmemory', '0', 'maxmemory-policy', 'noeviction'];
    case 'ping':
      return 'PONG';
    case 'exists':
      return 0;
    case 'client':
    case 'select':
    case 'quit':
      return 'OK';
    case 'hello':
      return ['server', 'redis', 'version', '7.0.15', 'proto', 2, 'mode', 'standalone', 'role', 'master'];
    case 'evalsha':
      if (!scripts.has(args[0] ?? '')) return new Error('NOSCRIPT No matching script');
      return evaluate(args.slice(1), model);
    case 'eval':
      scripts.add(toDigest(args[0] ?? ''));
      return evaluate(args.slice(1), model);
    default:
      return new Error(`ERR unknown command '${name}'`);
  }
}

/** By which the client names a script. */
function toDigest(script: string): string {
  return createHash('sha1').update(script).digest('hex');
}

function evaluate([count = '0', ...args]: readonly string[], model: RedisModel): Reply {
  const keys = Number(count);
  return model.run(args.slice(0, keys), args.slice(keys));
}

function toText(reply: Reply): string {
  if (reply === null) return '$-1\r\n';
  if (typeof reply === 'number') return `:${reply}${LINE_END}`;
  if (typeof reply === 'string') return `$${Buffer.byteLength(reply)}${LINE_END}${reply}${LINE_END}`;
  if (reply instanceof Error) return `-${reply.message}${LINE_END}`;
  return `*${reply.length}${LINE_END}${reply.map(toText).join('')}`;
}

/** Parses arrays of bulk strings. */
class CommandReader {
  #text = '';

  push(bytes: Buffer): string[][] {
    this.#text += bytes.toString('latin1');
    const commands: string[][] = [];
    for (let command = this.#take(); command !== undefined; command = this.#take()) commands.push(command);
    return commands;
  }

  #take(): string[] | undefined {
    const head = this.#line(0);
    if (head === undefined) return undefined;
    let { next } = head;
    const parts: string[] = [];
    for (let left = Number(head.line.slice(1)); left > 0; left--) {
      const size = this.#line(next);
      if (size === undefined) return undefined;
      const length = Number(size.line.slice(1));
      if (this.#text.length < size.next + length + 2) return undefined;
      parts.push(this.#text.slice(size.next, size.next + length));
      next = size.next + length + 2;
    }
    this.#text = this.#text.slice(next);
    return parts;
  }

  #line(from: number): { readonly line: string; readonly next: number } | undefined {
    const end = this.#text.indexOf(LINE_END, from);
    return end === -1 ? undefined : { line: this.#text.slice(from, end), next: end + 2 };
  }
}
