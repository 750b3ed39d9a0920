/** The receiver of the benchmark, in a separate process: responds 200 to everything. Arguments: certificate and key for TLS, or none. */
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import process, { argv } from 'node:process';

const KEEP_ALIVE_MS = 60_000;
const [cert, key] = argv.slice(2);
const respond: RequestListener = (request, response) => {
  request.resume();
  request.on('end', () => response.end('{"ok":true}'));
};
const server =
  cert === undefined || key === undefined
    ? createServer(respond)
    : createTlsServer({ cert: readFileSync(cert), key: readFileSync(key) }, respond);
server.keepAliveTimeout = KEEP_ALIVE_MS;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.send?.(typeof address === 'object' && address !== null ? address.port : 0);
});
