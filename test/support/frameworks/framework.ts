/**
 * Real web frameworks that all serve the same routes: `/admin` and all below it, exactly `/hooks/billing`, exactly `/account`, and a
 * catch-all. Each takes every method and answers which handler served the request, and the path, method and Host that it saw.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { sendRaw, toRequestText } from '../client.ts';
import { isInstalled, startCaddy, startNginx } from '../peers.ts';

/** The handler that served a request. */
export type HandlerName = 'admin' | 'billing' | 'account' | 'open';

/** What the handler saw. */
export interface Served {
  readonly handler: HandlerName;
  readonly path: string;
  readonly method: string;
  readonly host: string;
}

/** What a framework answered. */
export interface FrameworkResponse {
  readonly status: number;
  /** Absent where no handler served the request: an error or a redirect. */
  readonly served?: Served;
  /** Of a redirect. */
  readonly location?: string;
}

/** A framework that listens. */
export interface RunningFramework {
  readonly framework: Framework;
  readonly version: string;
  readonly port: number;
  /** Sends one request, byte for byte. */
  ask(target: string, options?: { readonly method?: string; readonly host?: string }): Promise<FrameworkResponse>;
  stop(): Promise<void>;
}

/** A framework that may be on this machine. */
export interface Framework {
  readonly name: FrameworkName;
  /** As docs name it. */
  readonly title: string;
  /** `cheap` ones belong to the normal test suite, `heavy` ones to the suite `oracles`. */
  readonly cost: 'cheap' | 'heavy';
  readonly isAvailable: () => boolean;
  readonly start: () => Promise<StartedServer>;
}

interface StartedServer {
  readonly port: number;
  readonly version: string;
  stop(): Promise<void>;
}

export type FrameworkName =
  | 'express'
  | 'express4'
  | 'fastify'
  | 'koa'
  | 'h3'
  | 'hono'
  | 'flask'
  | 'django'
  | 'starlette'
  | 'gunicorn'
  | 'daphne'
  | 'go'
  | 'chi'
  | 'gorilla'
  | 'gin'
  | 'spring'
  | 'sinatra'
  | 'php'
  | 'nginx'
  | 'caddy';

const HERE = import.meta.dirname;
const PYTHON = resolve('.cache/frameworks-python/bin/python');
const GO = resolve('.cache/frameworks-go');
const SPRING = resolve('.cache/frameworks-spring/frameworks.jar');

const always = (): boolean => true;
const hasPython = (): boolean => existsSync(resolve('.cache/frameworks-python/ready'));

const node = (name: FrameworkName): (() => Promise<StartedServer>) => {
  return () => spawnServer(process.execPath, [join(HERE, 'node', 'app.js'), name]);
};
const python = (name: FrameworkName): (() => Promise<StartedServer>) => {
  return () => spawnServer(PYTHON, [join(HERE, 'python', 'app.py'), name]);
};
const go = (name: FrameworkName, title: string): Framework => {
  return { name, title, cost: 'heavy', isAvailable: () => existsSync(GO), start: () => spawnServer(GO, [name]) };
};

/** All of them, in the order in which docs show them. */
export const FRAMEWORKS: readonly Framework[] = [
  { name: 'express', title: 'Express 5', cost: 'cheap', isAvailable: always, start: node('express') },
  { name: 'express4', title: 'Express 4', cost: 'cheap', isAvailable: always, start: node('express4') },
  { name: 'fastify', title: 'Fastify', cost: 'cheap', isAvailable: always, start: node('fastify') },
  { name: 'koa', title: 'Koa, @koa/router', cost: 'cheap', isAvailable: always, start: node('koa') },
  { name: 'h3', title: 'h3', cost: 'cheap', isAvailable: always, start: node('h3') },
  { name: 'hono', title: 'Hono', cost: 'cheap', isAvailable: always, start: node('hono') },
  { name: 'flask', title: 'Flask', cost: 'cheap', isAvailable: hasPython, start: python('flask') },
  { name: 'django', title: 'Django', cost: 'cheap', isAvailable: hasPython, start: python('django') },
  { name: 'starlette', title: 'Starlette, FastAPI', cost: 'cheap', isAvailable: hasPython, start: python('starlette') },
  { name: 'gunicorn', title: 'Flask, gunicorn', cost: 'cheap', isAvailable: hasPython, start: python('gunicorn') },
  { name: 'daphne', title: 'Django, Daphne', cost: 'cheap', isAvailable: hasPython, start: python('daphne') },
  go('go', 'Go net/http'),
  go('chi', 'chi'),
  go('gorilla', 'gorilla/mux'),
  go('gin', 'Gin'),
  {
    name: 'spring',
    title: 'Spring MVC, Tomcat',
    cost: 'heavy',
    isAvailable: () => existsSync(SPRING) && isInstalled('java'),
    start: () => spawnServer('java', ['-XX:TieredStopAtLevel=1', '-jar', SPRING]),
  },
  {
    name: 'sinatra',
    title: 'Sinatra, Puma',
    cost: 'heavy',
    isAvailable: () => spawnSync('ruby', ['-e', "require 'sinatra/base'; require 'puma'"]).status === 0,
    start: () => spawnServer('ruby', [join(HERE, 'ruby', 'app.rb')]),
  },
  {
    name: 'php',
    title: 'PHP front controller',
    cost: 'heavy',
    isAvailable: () => isInstalled('php'),
    start: () => spawnServer('php', ['-S', '127.0.0.1:0', join(HERE, 'php', 'index.php')], PHP_LISTENS),
  },
  { name: 'nginx', title: 'nginx location', cost: 'cheap', isAvailable: () => isInstalled('nginx'), start: startNginxMatcher },
  { name: 'caddy', title: 'Caddy path', cost: 'cheap', isAvailable: () => isInstalled('caddy'), start: startCaddyMatcher },
];

/** Starts one. */
export async function startFramework(framework: Framework): Promise<RunningFramework> {
  const { port, version, stop } = await framework.start();
  return {
    framework,
    version,
    port,
    ask: async (target, { method = 'GET', host = 'app.example' } = {}) => {
      const lines = [`${method} ${target} HTTP/1.1`, `Host: ${host}`, 'Connection: close'];
      return toFrameworkResponse(await sendRaw(port, toRequestText(lines)));
    },
    stop,
  };
}

/** What a raw answer says of the handler that served the request. */
export function toFrameworkResponse(text: string): FrameworkResponse {
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(text)?.[1] ?? 0);
  const end = text.indexOf('\r\n\r\n');
  const location = /^location: *(.*?)\r$/im.exec(text.slice(0, end + 2))?.[1];
  const body = text.slice(end + 4);
  const response = { status, ...(location === undefined ? undefined : { location }) };
  // Of a HEAD request, or of a framework's own error page.
  const [json] = /\{"[^]*\}/.exec(body) ?? [];
  if (json === undefined || !json.includes('"handler"')) return response;
  try {
    return { ...response, served: JSON.parse(Buffer.from(json, 'latin1').toString()) as Served };
  } catch {
    // nginx and Caddy do not escape what they put into a text.
    const handler = /"handler":"(\w+)"/.exec(json)?.[1] as HandlerName;
    return { ...response, served: { handler, path: json, method: '', host: '' } };
  }
}

const LISTENS = /^listening (?<port>\d+) (?<version>\S+)/m;
const PHP_LISTENS = /PHP (?<version>\S+) Development Server \(http:\/\/127\.0\.0\.1:(?<port>\d+)\) started/;
/** A JVM on a busy machine. */
const START_TIMEOUT_MS = 60_000;

async function spawnServer(command: string, args: readonly string[], listens = LISTENS): Promise<StartedServer> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  const exit = new Promise<void>((done) => child.once('exit', () => done()));
  const stop = async (): Promise<void> => {
    process.off('exit', kill);
    kill();
    await exit;
  };
  try {
    const { port, version = '' } = await findListening(child, listens);
    return { port: Number(port), version, stop };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

function findListening({ stdout, stderr }: ChildProcess, listens: RegExp): Promise<Readonly<Record<string, string>>> {
  return new Promise((done, fail) => {
    let text = '';
    const timer = setTimeout(() => fail(new Error(`it does not listen: ${text}`)), START_TIMEOUT_MS);
    const read = (chunk: string): void => {
      text = `${text}${chunk}`.slice(-10_000);
      const { groups } = listens.exec(text) ?? {};
      if (groups === undefined) return;
      clearTimeout(timer);
      done(groups);
    };
    stdout?.setEncoding('utf8').on('data', read);
    stderr?.setEncoding('utf8').on('data', read);
    stdout?.once('end', () => fail(new Error(`it ended before it listened: ${text}`)));
  });
}

const NGINX_SERVES = (handler: HandlerName): string =>
  `{ return 200 '{"handler":"${handler}","path":"$uri","method":"$request_method","host":"$host"}'; }`;
const NGINX_CONFIG = `server {
  listen 127.0.0.1:8000;
  default_type application/json;
  location = /admin ${NGINX_SERVES('admin')}
  location /admin/ ${NGINX_SERVES('admin')}
  location = /hooks/billing ${NGINX_SERVES('billing')}
  location = /account ${NGINX_SERVES('account')}
  location / ${NGINX_SERVES('open')}
}`;

const CADDY_SERVES = (handler: HandlerName): string =>
  `respond \`{"handler":"${handler}","path":"{http.request.uri.path}","method":"{http.request.method}","host":"{http.request.host}"}\``;
const CADDY_CONFIG = `http://:8000 {
  @admin path /admin /admin/*
  @billing path /hooks/billing
  @account path /account
  handle @admin {
    ${CADDY_SERVES('admin')}
  }
  handle @billing {
    ${CADDY_SERVES('billing')}
  }
  handle @account {
    ${CADDY_SERVES('account')}
  }
  handle {
    ${CADDY_SERVES('open')}
  }
}
`;
const NO_LEADS = { authzPort: 0, appPort: 0 };

async function startNginxMatcher(): Promise<StartedServer> {
  const peer = await startNginx(NGINX_CONFIG, NO_LEADS);
  return { ...peer, version: /nginx\/(\S+)/.exec(spawnSync('nginx', ['-v'], { encoding: 'utf8' }).stderr)?.[1] ?? '' };
}

async function startCaddyMatcher(): Promise<StartedServer> {
  const peer = await startCaddy(CADDY_CONFIG, NO_LEADS);
  return { ...peer, version: spawnSync('caddy', ['version'], { encoding: 'utf8' }).stdout.trim() };
}
