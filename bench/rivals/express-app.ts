/** The rival inside the app: express with the standardwebhooks library and one SET NX, a common solution. */
import process from 'node:process';
import express, { type Request, type Response } from 'express';
import { Redis } from 'ioredis';
import { destination, pino } from 'pino';
import { Webhook } from 'standardwebhooks';
import { setServiceFlags } from '../../src/http/server/memory.ts';

// Each rival is idle while others are measured: V8 would discard its code, and compile it again in the next scenario.
setServiceFlags();

const RETENTION_SECONDS = 3 * 24 * 60 * 60;
const [port, redisPort, logFile] = process.argv.slice(2);
const webhook = new Webhook(process.env['BENCH_SECRET'] ?? '');
const redis = new Redis(Number(redisPort), '127.0.0.1', { enableAutoPipelining: true });
const stream = destination({ dest: logFile ?? '', sync: false, minLength: 4096 });
const log = pino({}, stream);
const flush = setInterval(() => stream.flush(), 100);

interface Handled {
  readonly id: string;
  readonly outcome: 'handled' | 'duplicate' | 'refused';
  readonly status: number;
}

function answer(request: Request, response: Response, { id, outcome, status }: Handled): void {
  response.status(status).json({ ok: outcome !== 'refused' });
  log.info({ method: request.method, path: request.path, status, outcome, webhookId: id, client: request.ip }, 'request');
}

async function receive(request: Request, response: Response): Promise<void> {
  const id = request.get('webhook-id') ?? '';
  try {
    webhook.verify(request.body as Buffer, request.headers as Record<string, string>);
  } catch {
    answer(request, response, { id: '', outcome: 'refused', status: 401 });
    return;
  }
  const isNew = (await redis.set(`bench:${id}`, '1', 'EX', RETENTION_SECONDS, 'NX')) === 'OK';
  answer(request, response, { id, outcome: isNew ? 'handled' : 'duplicate', status: 200 });
}

const app = express();
app.post('/hooks/billing', express.raw({ type: 'application/json', limit: '1mb' }), receive);
const server = app.listen(Number(port), '127.0.0.1');
process.once('SIGTERM', () => {
  clearInterval(flush);
  redis.disconnect();
  server.close();
  server.closeAllConnections();
});
