const express = require('express');

const app = express();

app.post('/hooks/stripe', express.json(), (request, response) => {
  console.log('stripe', request.body.id, request.body.type);
  response.send('handled\n');
});

app.post('/hooks/github', express.json({ limit: '25mb' }), (request, response) => {
  console.log('github', request.get('X-GitHub-Delivery'), request.body.action);
  response.send('handled\n');
});

app.post('/hooks/slack', express.json(), (request, response) => {
  console.log('slack', request.body.event_id, request.body.event.type);
  response.send('handled\n');
});

app.get('/', (_request, response) => response.send('welcome\n'));

// Loopback only: otherwise clients could reach the app without sidegate.
app.listen(3000, '127.0.0.1', (error) => {
  if (error) throw error; // for example, another process uses the port
  console.log('app is ready');
});
