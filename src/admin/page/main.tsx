/** Starts the console in the browser: replaces the list that came with the page. */
import { render } from 'preact';
import { readSession } from './api.ts';
import { App } from './app.tsx';

const root = document.getElementById('app');
if (root !== null) {
  const session = readSession(root);
  root.replaceChildren();
  render(<App session={session} />, root);
}
