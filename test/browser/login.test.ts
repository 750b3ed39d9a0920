import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { useAuthority, useGate, useServer } from '../support/fixtures.ts';
import { startGate, until } from '../support/gate.ts';
import { makeEntry } from '../support/users.ts';
import { answerPrompts, openBrowser, type Prompts } from './chromium.ts';

const DOWNLOAD = Buffer.alloc(5_000_000, 'd');
const RIGHT = ['Amélie', 'open £sesame'] as const;
let browser: Browser;
let context: BrowserContext;
let page: Page;
let prompts: Prompts;
/** Who asked the app for what. */
let received: string[];

const server = createServer((request, response) => {
  received.push(`${request.headers['sidegate-user']} ${request.method} ${request.url}`);
  void serve(request, response);
});
const sockets = new WebSocketServer({ server });
sockets.on('connection', (socket, request) => {
  socket.send(`hello ${request.headers['sidegate-user']}`);
  socket.on('message', (data) => socket.send(`echo ${data}`));
});
const pair = useAuthority().issue('server', 'DNS:localhost');
const app = useServer(server);
const gate = useGate(() => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const users = { file: 'users' };
  return startGate(
    {
      listen: { address: '127.0.0.1:0', tls: { certFile: pair.cert, keyFile: pair.key } },
      routes: [
        { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic: { realm: 'the "inner" house', users } },
        { name: 'same', match: { pathPrefix: '/same' }, upstream, basic: { realm: 'the "inner" house' } },
        { name: 'other', match: { pathPrefix: '/other' }, upstream, basic: { realm: 'other', users: { file: 'others' } } },
        { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
      ],
    },
    undefined,
    { users: makeEntry(...RIGHT), others: makeEntry('someone', 'else') },
  );
});
beforeAll(async () => {
  browser = await openBrowser({ certificates: [pair.cert] });
});
afterAll(() => browser.close());
beforeEach(async () => {
  received = [];
  context = await browser.newContext();
  page = await context.newPage();
  prompts = await answerPrompts(context, page);
});
afterEach(() => context.close());

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = request.url ?? '';
  if (path.endsWith('/download')) {
    response.writeHead(200, { 'Content-Disposition': 'attachment; filename="data.bin"', 'Content-Length': DOWNLOAD.length });
    response.end(DOWNLOAD);
  } else if (path.endsWith('/events')) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (let i = 1; i <= 3; i++) response.write(`data: ${i}\n\n`);
  } else {
    let length = 0;
    for await (const chunk of request) length += (chunk as Buffer).length;
    response.writeHead(200, { 'Content-Type': 'text/html' });
    response.end(
      `<title>${request.method} ${length}</title>
       <form method="post" enctype="multipart/form-data" action="/admin/upload"><input type="file" name="file"><button>send</button></form>
       <a href="/admin/download">download</a>`,
    );
  }
}

const url = (path: string): string => `https://localhost:${gate.port}${path}`;
const visit = async (path: string): Promise<number | undefined> => (await page.goto(url(path)))?.status();
const logIn = async (): Promise<void> => {
  prompts.answers.push(RIGHT);
  expect(await visit('/admin')).toBe(200);
};
const REALM = 'Server basic the "inner" house';

describe('logging in', () => {
  test('is prompted by the browser: a wrong password, then the correct one, and then no more prompts', async () => {
    prompts.answers.push(['Amélie', 'wrong'], RIGHT);
    expect(await visit('/admin')).toBe(200);
    expect(prompts.asked).toEqual([REALM, REALM]);
    expect(await visit('/admin/page')).toBe(200);
    expect(prompts.asked).toHaveLength(2);
    expect(received).toEqual(['Am%C3%A9lie GET /admin', 'Am%C3%A9lie GET /admin/page']);
  });

  test('can be cancelled: the browser then shows the rejection', async () => {
    expect(await visit('/admin')).toBe(401);
    expect(prompts.asked).toEqual([REALM]);
    expect(received).toEqual([]);
  });

  test('is valid for every route of the realm, and for no other', async () => {
    await logIn();
    expect(await visit('/same')).toBe(200);
    expect(prompts.asked).toEqual([REALM]);
    expect(await visit('/other')).toBe(401);
    expect(prompts.asked).toEqual([REALM, 'Server basic other']);
    expect(await visit('/open')).toBe(200);
    expect(received.at(-1)).toBe('undefined GET /open');
  });

  test('works with credentials that an automation tool supplies', async () => {
    const own = await browser.newContext({ httpCredentials: { username: RIGHT[0], password: RIGHT[1] } });
    const answer = await (await own.newPage()).goto(url('/admin'));
    expect(answer?.status()).toBe(200);
    await own.close();
  });

  test('ends when a wrong password replaces the correct one', async () => {
    await logIn();
    // As pages do that have a button for it.
    const status = await page.evaluate(`new Promise((resolve) => {
      const request = new XMLHttpRequest();
      request.open('GET', '/admin', true, 'nobody', 'nothing');
      request.onloadend = () => resolve(request.status);
      request.send();
    })`);
    expect(status).toBe(401);
    const before = prompts.asked.length;
    expect(await visit('/admin')).toBe(401);
    expect(prompts.asked.length).toBeGreaterThan(before);
  });
});

describe('a logged-in user', () => {
  beforeEach(logIn);

  test('downloads', async () => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
    expect(download.suggestedFilename()).toBe('data.bin');
    expect(readFileSync(await download.path()).equals(DOWNLOAD)).toBe(true);
  });

  test('uploads by a form', async () => {
    await page.setInputFiles('input', {
      name: 'a.bin',
      mimeType: 'application/octet-stream',
      buffer: Buffer.alloc(5_000_000, 'u'),
    });
    await Promise.all([page.waitForURL('**/upload'), page.click('button')]);
    const [, method, length] = /^(\w+) (\d+)$/.exec(await page.title()) ?? [];
    expect(method).toBe('POST');
    expect(Number(length)).toBeGreaterThan(5_000_000);
  });

  test('receives server-sent events', async () => {
    const events = await page.evaluate(
      () =>
        new Promise<string[]>((resolve, reject) => {
          const seen: string[] = [];
          const source = new EventSource('/admin/events');
          source.onerror = () => reject(new Error('the stream failed'));
          source.onmessage = ({ data }) => {
            seen.push(String(data));
            if (seen.length < 3) return;
            source.close();
            resolve(seen);
          };
        }),
    );
    expect(events).toEqual(['1', '2', '3']);
    // Leaving ends the exchange with the app, too.
    await until(() => gate.log().some((line) => line['reason'] === 'sender_gone'));
  });

  test('uses a WebSocket', async () => {
    const messages = await page.evaluate(
      (target) =>
        new Promise<string[]>((resolve, reject) => {
          const seen: string[] = [];
          const socket = new WebSocket(target);
          socket.onerror = () => reject(new Error('the socket failed'));
          socket.onopen = () => socket.send('x');
          socket.onmessage = ({ data }) => {
            seen.push(String(data));
            if (seen.length < 2) return;
            socket.close(1000);
            resolve(seen);
          };
        }),
      url('/admin/socket').replace('https:', 'wss:'),
    );
    expect(messages).toEqual(['hello Am%C3%A9lie', 'echo x']);
  });
});
