/** Renders the page in the gate, for browsers without JavaScript and before it runs. A separate bundle for Node (scripts/bundle.ts). */
import { renderToString } from 'preact-render-to-string';
import type { RenderPage } from '../console/page.ts';
import { App } from './app.tsx';

export const renderPage: RenderPage = (session, search, given) =>
  renderToString(<App session={session} search={search} given={given} />);
