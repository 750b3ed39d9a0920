/** Apps that are scripts on a bare socket, exact to the byte. */
import { spawn } from 'node:child_process';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { execPath } from 'node:process';

/** A running script. */
export interface ScriptApp {
  readonly port: number;
  /** How many connections were opened to it. */
  readonly connections: number;
  close(): void;
}

/** What it does with a connection; the first is number 1. */
export type Script = (socket: Socket, connection: number) => void;

/** Starts an app on a free port that runs `script` on each connection. */
export async function startScriptApp(script: Script): Promise<ScriptApp> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
    script(socket, ++connections);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Answers every request (each must come in one packet) with the same bytes, latin1. */
export function answering(...pieces: readonly string[]): Script {
  return (socket) => {
    socket.on('data', () => {
      for (const piece of pieces) socket.write(piece, 'latin1');
    });
  };
}

const DEAF_APP = `
  const server = require('node:net').createServer();
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    process.stdout.write(String(server.address().port), () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
  });
`;

/** An app that accepts nobody, with as many callers before the door as its queue holds: whoever else connects just waits. */
export async function startDeafApp(): Promise<Pick<ScriptApp, 'port' | 'close'>> {
  const child = spawn(execPath, ['-e', DEAF_APP], { stdio: ['ignore', 'pipe', 'inherit'] });
  const port = await new Promise<number>((resolve) => child.stdout.once('data', (text) => resolve(Number(text))));
  const callers = Array.from({ length: 2 }, () => connect(port, '127.0.0.1'));
  await Promise.all(callers.map((caller) => new Promise((resolve) => caller.once('connect', resolve))));
  for (const caller of callers) caller.on('error', () => undefined);
  return {
    port,
    close() {
      for (const caller of callers) caller.destroy();
      child.kill('SIGKILL');
    },
  };
}
