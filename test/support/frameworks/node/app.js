/** Serves the routes of ../framework.ts with a framework of Node.js, named by the first argument. */

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { argv, stdout } from 'node:process';

const require = createRequire(import.meta.url);
const answer = (handler, { path, method, host }) => ({ handler, path, method, host });

function express({ default: create }) {
  const app = create();
  const serve = (handler) => (request, response) =>
    response.json(answer(handler, { path: request.path, method: request.method, host: request.headers.host }));
  const admin = create.Router();
  admin.use(serve('admin'));
  app.use('/admin', admin);
  app.all('/hooks/billing', serve('billing'));
  app.all('/account', serve('account'));
  app.use(serve('open'));
  return createServer(app);
}

async function fastify() {
  const { default: create } = await import('fastify');
  const app = create();
  const serve = (handler) => (request, reply) =>
    reply.send(answer(handler, { path: request.url, method: request.method, host: request.headers.host }));
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.all('/admin', serve('admin'));
  app.all('/admin/*', serve('admin'));
  app.all('/hooks/billing', serve('billing'));
  app.all('/account', serve('account'));
  app.all('/*', serve('open'));
  await app.ready();
  return app.server;
}

async function koa() {
  const { default: Koa } = await import('koa');
  const { Router } = await import('@koa/router');
  const app = new Koa();
  const router = new Router();
  const serve = (handler) => (context) => {
    context.body = answer(handler, { path: context.path, method: context.method, host: context.headers.host });
  };
  router.all('/admin', serve('admin'));
  router.all('/admin/*rest', serve('admin'));
  router.all('/hooks/billing', serve('billing'));
  router.all('/account', serve('account'));
  app.use(router.routes());
  app.use(serve('open'));
  return createServer(app.callback());
}

async function h3() {
  const { H3, toNodeHandler } = await import('h3');
  const app = new H3();
  const serve = (handler) => (event) =>
    answer(handler, { path: event.url.pathname, method: event.req.method, host: event.req.headers.get('host') });
  app.all('/admin', serve('admin'));
  app.all('/admin/**', serve('admin'));
  app.all('/hooks/billing', serve('billing'));
  app.all('/account', serve('account'));
  app.all('/**', serve('open'));
  return createServer(toNodeHandler(app));
}

async function hono() {
  const { Hono } = await import('hono');
  const { getRequestListener } = await import('@hono/node-server');
  const app = new Hono();
  const serve = (handler) => (context) =>
    context.json(answer(handler, { path: context.req.path, method: context.req.method, host: context.req.header('host') }));
  app.all('/admin', serve('admin'));
  app.all('/admin/*', serve('admin'));
  app.all('/hooks/billing', serve('billing'));
  app.all('/account', serve('account'));
  app.all('*', serve('open'));
  return createServer(getRequestListener(app.fetch));
}

const APPS = {
  express: async () => express(await import('express')),
  express4: async () => express(await import('express4')),
  fastify,
  koa,
  h3,
  hono,
};

const name = argv[2];
const server = await APPS[name]();
server.listen(0, '127.0.0.1', () => {
  stdout.write(`listening ${server.address().port} ${findVersion(name)}\n`);
});

function findVersion(name) {
  const found = require.resolve.paths(name).flatMap((folder) => {
    try {
      return [require(`${folder}/${name}/package.json`).version];
    } catch {
      return [];
    }
  });
  return found[0] ?? 'unknown';
}
