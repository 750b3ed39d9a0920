/** Runs inside the node: connects whoever asks on its Unix socket, which all tests can reach, to an address of the node's network. */
import { connect, createServer, type Socket } from 'node:net';

const [socketFile = ''] = process.argv.slice(2);

createServer({ allowHalfOpen: true }, (client) => {
  client.on('error', () => client.destroy());
  client.once('data', (first: Buffer) => {
    client.pause();
    const end = first.indexOf('\n');
    const [host = '', port] = first.subarray(0, end).toString('latin1').split(' ');
    client.unshift(first.subarray(end + 1));
    join(client, connect({ host, port: Number(port), allowHalfOpen: true }));
  });
}).listen(socketFile, () => console.log('ready'));

function join(client: Socket, upstream: Socket): void {
  upstream.on('error', () => client.destroy());
  client.on('close', () => upstream.destroy());
  upstream.on('close', () => client.destroy());
  client.pipe(upstream).pipe(client);
}
