/** Git's own server (git http-backend, a CGI program) as an app. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A running one, with an empty repository at /repo.git. */
export interface GitApp {
  readonly port: number;
  readonly folder: string;
  /** Who pushed, as the gate told it. */
  readonly users: Set<string>;
  close(): void;
}

/** Starts it. */
export async function startGitApp(): Promise<GitApp> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-git-'));
  execFileSync('git', ['init', '--quiet', '--bare', join(folder, 'repo.git')]);
  const users = new Set<string>();
  const server = createServer((request, response) => {
    const user = request.headers['sidegate-user'];
    if (typeof user === 'string') users.add(user);
    serve(folder, request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    folder,
    users,
    close() {
      server.close();
      server.closeAllConnections();
      rmSync(folder, { recursive: true });
    },
  };
}

function serve(folder: string, request: IncomingMessage, response: ServerResponse): void {
  const { method = '', url = '', headers } = request;
  const { pathname, search } = new URL(url, 'http://git');
  const text = (name: string): string => String(headers[name] ?? '');
  const child = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: folder,
      GIT_HTTP_EXPORT_ALL: '1',
      REQUEST_METHOD: method,
      PATH_INFO: pathname,
      QUERY_STRING: search.slice(1),
      CONTENT_TYPE: text('content-type'),
      ...(headers['content-length'] === undefined ? undefined : { CONTENT_LENGTH: text('content-length') }),
      HTTP_CONTENT_ENCODING: text('content-encoding'),
      GIT_PROTOCOL: text('git-protocol'),
      // Without a user it takes no push.
      REMOTE_USER: text('sidegate-user'),
    },
  });
  child.stdin.on('error', () => undefined);
  request.pipe(child.stdin);
  let head = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end === -1) return;
    child.stdout.off('data', onData);
    const fields = head
      .toString('latin1', 0, end)
      .split('\r\n')
      .map((line) => line.split(': ') as [string, string]);
    const status = fields.find(([name]) => name === 'Status')?.[1];
    response.writeHead(Number.parseInt(status ?? '200', 10), fields.filter(([name]) => name !== 'Status').flat());
    response.write(head.subarray(end + 4));
    child.stdout.pipe(response);
  };
  child.stdout.on('data', onData);
}
