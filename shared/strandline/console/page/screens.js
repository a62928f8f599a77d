// The screens, in the order of the menu. router.js says how one is added.

import { screen as overview } from "./overview.js";

export const SCREENS = [overview];
