/** The app that the image `app` runs: it listens where HOST and PORT say, tells what it got, and ends on SIGTERM as apps mostly do. */
import { createServer } from 'node:http';

/** What it writes to standard output for every request, as one line of JSON. */
export interface AppLine {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const { HOST, PORT = '8080', WORK_MS = '0' } = process.env;
const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (chunk: string) => {
    body += chunk;
  });
  request.on('end', () => {
    const { method, url, headers } = request;
    if (url === '/live' || url === '/ready') {
      response.end('ok');
      return;
    }
    process.stdout.write(`${JSON.stringify({ method, url, headers, body })}\n`);
    setTimeout(() => response.end('handled'), Number(WORK_MS));
  });
});
server.listen(Number(PORT), HOST);
process.once('SIGTERM', () => {
  server.close(() => process.exit(0));
  server.closeIdleConnections();
});
