/** The app behind the gate, in a separate process so that it does not delay the sender: `node app.ts PORT`. */
import { createServer } from 'node:http';
import { argv } from 'node:process';

const LARGE = Buffer.alloc(4_000_000);
const SLOW_MS = 1_000;

createServer((request, response) => {
  request.resume();
  if (request.url === '/open/large') response.end(LARGE);
  else if (request.url === '/open/slow') setTimeout(() => response.end('slow'), SLOW_MS);
  else request.on('end', () => response.end('handled'));
}).listen(Number(argv[2]), '127.0.0.1');
