/** The dashboards of the chart, from which chart/sidegate/dashboards is generated (`npm run docs`). */

import { fleet } from './dashboard-fleet.ts';
import { type Dashboard, renderDashboard } from './dashboard-forms.ts';
import { provider } from './dashboard-provider.ts';
import { routes } from './dashboard-routes.ts';
import { security } from './dashboard-security.ts';

/** By file name. */
const DASHBOARDS: Readonly<Record<string, Dashboard>> = { security, routes, fleet, provider };

/** Writers by file. */
export const DASHBOARD_FILES: Readonly<Record<string, () => string>> = Object.fromEntries(
  Object.entries(DASHBOARDS).map(([name, dashboard]) => [
    `chart/sidegate/dashboards/${name}.json`,
    () => renderDashboard(dashboard),
  ]),
);
