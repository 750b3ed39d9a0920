/** A gate whose forward proxy is what a test is about, and how to speak to it byte for byte. */
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../src/core/clock.ts';
import { type Sections, startGate, type TestGate } from './gate.ts';
import { makeEntry, toBasic } from './users.ts';

/** What a proxy gate is started with, beside what it always has. */
export interface ProxySetup {
  readonly allow: readonly string[];
  /** What names lead to. */
  readonly names?: Readonly<Record<string, readonly string[]>> | 'system';
  readonly proxy?: Sections;
  readonly sections?: Sections;
  readonly files?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
}

/** The user of the proxy. */
export const PROXY_USER = 'Aladdin';
/** The password. */
export const PROXY_PASSWORD = 'open sesame';
/** The field line that lets in. */
export const PROXY_AUTH = `Proxy-Authorization: ${toBasic(PROXY_USER, PROXY_PASSWORD).Authorization}\r\n`;

/** Starts a gate with a proxy in clear text that may reach loopback. */
export function startProxyGate(setup: ProxySetup): Promise<TestGate> {
  const { allow, names = {}, proxy = {}, sections = {}, files = {}, clock } = setup;
  return startGate(
    {
      routes: [{ name: 'a', match: { path: '/' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' }],
      proxy: {
        address: '127.0.0.1:0',
        requireTls: false,
        denyPrivate: false,
        basic: { realm: 'egress', users: { file: 'users' } },
        allow,
        ...proxy,
      },
      ...sections,
    },
    clock,
    { users: makeEntry(PROXY_USER, PROXY_PASSWORD), ...files },
    names,
  );
}

/** A connection to a port on loopback, half-open allowed, whose resets are no errors of the test's. */
export function openSocket(port: number): Socket {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => socket.destroy());
  return socket;
}

/** All that comes until the other side ends. */
export function readToEnd(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let all = '';
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      all += chunk;
    });
    const done = (): void => {
      socket.destroy();
      resolve(all);
    };
    socket.once('end', done);
    socket.once('close', done);
  });
}

/** Writes to a port and reads until it ends; our side stays open, as rude clients leave it. */
export function exchangeRaw(port: number, ...parts: readonly string[]): Promise<string> {
  const socket = openSocket(port);
  for (const part of parts) socket.write(part, 'latin1');
  return readToEnd(socket);
}

/** Opens a tunnel and waits for the 200. */
export async function openTunnel(port: number, authority: string): Promise<Socket> {
  const socket = openSocket(port);
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${PROXY_AUTH}\r\n`);
  const answer = String(await new Promise((resolve) => socket.once('data', resolve)));
  if (!answer.startsWith('HTTP/1.1 200 ')) throw new Error(`no tunnel: ${answer}`);
  return socket;
}
