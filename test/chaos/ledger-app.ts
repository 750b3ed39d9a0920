/**
 * The app behind the gates, in its own process: `ledger-app.ts LEDGER PORT…`. It appends a line to the ledger for each request, before it responds;
 * the file outlives it. It listens on one port per gate, so that the ledger says which gate forwarded. A message `{ action, count }`
 * tells it how to treat the next requests.
 */
import { appendFileSync, openSync, writeSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { argv } from 'node:process';
import type { AppAction } from './ledger.ts';
import { APP_TIMEOUT_MS } from './settings.ts';

/** After the gate has given up, and before the lease ends. */
const LATE_MS = APP_TIMEOUT_MS + 300;
const [, , path = '', ...ports] = argv;
appendFileSync(path, '');
const ledger = openSync(path, 'a');
const actions: AppAction[] = [];

process.on('message', ({ action, count }: { action: AppAction; count: number }) => {
  for (let i = 0; i < count; i++) actions.push(action);
});
process.on('disconnect', () => process.exit());

/** Whether the body is the one that its sender made for this ID. */
function isIntact(id: string, body: Buffer): boolean {
  const number = /^(?:chaos|direct)-(\d+)$/.exec(id)?.[1];
  try {
    const { data } = JSON.parse(body.toString()) as { data: { number: number } };
    return data.number === Number(number);
  } catch {
    return false;
  }
}

function receive(gate: number, action: AppAction, request: IncomingMessage, body: Buffer, response: ServerResponse): void {
  const id = String(request.headers['webhook-id']);
  const requestId = String(request.headers['sidegate-request-id']);
  // Each process of a gate has its own name for the key.
  const life = String(request.headers['sidegate-key']).slice('life-'.length);
  const arrivedAt = Date.now();
  const state = isIntact(id, body) ? 'intact' : 'changed';
  const write = (what: 'handled' | 'arrived'): void => {
    writeSync(ledger, `${arrivedAt} ${what} ${gate} ${life} ${requestId} ${id} ${state} ${action}\n`);
  };
  if (action === 'late') {
    setTimeout(() => {
      write('handled');
      response.end('late');
    }, LATE_MS);
    return;
  }
  const isBefore = action.endsWith('Before');
  write(isBefore ? 'arrived' : 'handled');
  switch (action) {
    case 'handle':
      response.end('handled');
      return;
    case 'errorBefore':
      response.writeHead(503).end();
      return;
    case 'crash':
    case 'crashBefore':
      process.kill(process.pid, 'SIGKILL');
      return;
    case 'reset':
    case 'resetBefore':
      request.socket.resetAndDestroy();
      return;
    case 'half':
      response.writeHead(200, { 'Content-Length': 1_000 });
      response.write('half', () => request.socket.destroy());
      return;
    case 'hang':
    case 'hangBefore':
      return;
  }
}

for (const [gate, port] of ports.entries()) {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('error', () => undefined);
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => receive(gate, actions.shift() ?? 'handle', request, Buffer.concat(chunks), response));
  });
  server.keepAliveTimeout = 60_000;
  server.listen(Number(port), '127.0.0.1', () => process.send?.('listening'));
}
