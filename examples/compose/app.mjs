import { createServer } from 'node:http';

createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const { id, type } = JSON.parse(body);
  console.log('stripe', id, type);
  // sidegate stores the event before it answers 202. A repeated post with the same ID sends nothing twice.
  const { status } = await fetch('http://127.0.0.1:8482/v1/events', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ type: 'order.paid', id: `order-of-${id}`, data: { payment: id } }),
  });
  // After a 503, Stripe retries.
  response.writeHead(status === 202 ? 200 : 503).end('handled\n');
}).listen(3000, '127.0.0.1', () => console.log('app is ready'));
